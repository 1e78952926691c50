"""What a read-only client does: it looks, fetches, then tries all else. Run as a program."""

from __future__ import annotations

import json
import sys
from typing import Any

from distributed import Event, Future, Variable

import safeser


def looks(client: Any, squares: Future) -> dict[str, Any]:
    return {
        "workers": len(client.scheduler_info()["workers"]),
        "repr": "2 workers" in repr(client) or "processes=2" in repr(client),
        "variable": Variable("squares").get(timeout=20).result(timeout=20).tolist(),
        "dataset": client.get_dataset("published").result(timeout=20).tolist(),
        "datasets": list(client.list_datasets()),
        "future": squares.result(timeout=20).tolist(),
        "direct": client.gather(squares, direct=True).tolist(),
        "who_has": len(client.who_has([squares])["squares"]),
        "metadata": client.get_metadata("owner"),
        "stream": isinstance(client.get_task_stream(), tuple | list),
        "set": Event("never").is_set(),
    }


def tries(client: Any, squares: Future) -> dict[str, Any]:
    return {
        "submit": lambda: client.submit(len, "x"),
        "persist": lambda: client.get({"a": (len, "x")}, "a"),
        "direct": lambda: client.scatter([7], hash=False, direct=True),
        "run": lambda: client.run(len, "x"),
        "metadata": lambda: client.set_metadata("owner", "eve"),
        "shutdown": lambda: client.shutdown(),
        "cancel": lambda: client.cancel([squares], force=True),
        "delete": lambda: Variable("squares").delete(),
    }


def refused(call: Any) -> Any:
    try:
        return repr(call())
    except safeser.SafeserError as error:
        return [error.rule]
    except Exception as error:
        return repr(error)


def connected() -> Any:
    client = safeser.Client(sys.argv[1], timeout=30)
    client.wait_for_workers(2, timeout=60)
    return client


with connected() as client:
    # One for both: Dask tells the scheduler nothing of a future that is made by hand. What comes
    # for the same key finishes it, here of the variable, or another future that still has it.
    squares = Future("squares", client)
    seen = looks(client, squares)
    held = {name: refused(call) for name, call in tries(client, squares).items()}
    status = client.status  # a refused shutdown closes nothing
    # Elements of the stream have no answer: what they ask for must not have happened, whoever sends
    # them all the same. This client takes its own word for it, so another one looks.
    for element in (
        {"op": "variable_delete", "name": "squares"},
        {"op": "cancel-keys", "keys": ["squares"], "force": True, "reason": None, "msg": None},
    ):
        client.loop.add_callback(client._send_to_scheduler_safe, element)
    client.get_metadata("owner")
with connected() as client:
    print(
        json.dumps(
            {
                "looks": seen,
                "tries": held,
                "status": status,
                "again": looks(client, Future("squares", client)),
            }
        )
    )
