"""The process of dana or erin, who work on the cluster of two groups of workers.

The one rule: both run this same program, and only their keys differ. What comes of a request is
told as it is, a refusal with its rule.

Argument: the scheduler's address.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from distributed import Future

import safeser
from safeser.demo.speech import Speech
from safeser.errors import SafeserError

__all__ = ["Member", "main"]

_WAIT = 30.0


class Member:
    """What both can be asked to do."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._kept: list[Any] = []

    def meet(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for the workers and tell which probes each says that it passed, by its name."""
        self._client.wait_for_workers(command["workers"], timeout=_WAIT)
        known = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return {each["name"]: each.get("safeser-confined", {}).get("probes", []) for each in known}

    def compute(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Compute by a lambda, keep the result under a key, and tell which worker has it."""
        future = self._client.submit(lambda n: sum(range(n)), 1000, key=command["key"])
        self._kept.append(future)
        found = future.result(_WAIT)
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        (holders,) = self._client.who_has([future]).values()
        return {"found": found, "workers": [workers[each]["name"] for each in holders]}

    def read(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Read a file by a lambda on a worker and tell its size."""
        path = Path(command["path"])
        future = self._client.submit(lambda: len(path.read_bytes()), pure=False)
        return _outcome(lambda: future.result(_WAIT))

    def gather(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for the result under a key."""
        return _outcome(lambda: self._named(command["key"]).result(_WAIT))

    def depend(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Submit a lambda that takes the result under a key."""

        def depend() -> Any:
            named = self._named(command["key"])
            return self._client.submit(lambda n: n + 1, named, pure=False).result(_WAIT)

        return _outcome(depend)

    def _named(self, key: str) -> Any:
        return Future(key, self._client, state="memory")


def _outcome(ask: Callable[[], Any]) -> dict[str, Any]:
    """Return what *ask* found, or how it was refused."""
    try:
        return {"found": ask()}
    except SafeserError as error:
        return {"refused": error.rule}
    except PermissionError as error:
        return {"refused": f"PermissionError: {error.strerror}"}


def main(address: str) -> None:
    """Serve command after command."""
    speech = Speech.of_this_process()
    with contextlib.ExitStack() as stack:
        member = None
        for command in speech.commands():
            try:
                if member is None:
                    client = safeser.Client(address, timeout=_WAIT)
                    stack.callback(_leave, client)
                    member = Member(client)
                speech.tell("done", **getattr(member, command["do"])(command))
            except Exception as error:  # whatever it is, the starter must hear of it
                speech.tell("failed", reason=f"{type(error).__name__}: {error}")


def _leave(client: Any) -> None:
    """Close *client*, even if the scheduler is gone already."""
    with contextlib.suppress(Exception):
        client.close(timeout=2)


if __name__ == "__main__":
    main(sys.argv[1])
