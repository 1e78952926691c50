"""The program of dana and erin, who submit tasks to the cluster with two worker groups.

Both run this same program; only their keys differ. A request returns its result, or the rule that
refused it.

Argument: the scheduler's address.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from distributed import Future

import safeser
from examples.demo.pipe import Pipe
from safeser.errors import SafeserError

__all__ = ["GroupUser", "main"]

_WAIT = 120.0  # seconds, for a busy machine


class GroupUser:
    """A client whose methods are the commands of this program."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._kept: list[Any] = []

    @cached_property
    def _client(self) -> Any:
        """The client, which connects at the first command: the scheduler may start later."""
        return safeser.Client(self._address, timeout=_WAIT)

    def answer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run the method that *command* names."""
        result: dict[str, Any] = getattr(self, command["do"])(command)
        return result

    def meet(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for the workers; return the confinement probes that each reports as passed."""
        self._client.wait_for_workers(command["workers"], timeout=_WAIT)
        known = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return {each["name"]: each.get("safeser-confined", {}).get("probes", []) for each in known}

    def compute(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run a lambda, keep its result under a key, and return which worker holds it."""
        future = self._client.submit(lambda n: sum(range(n)), 1000, key=command["key"])
        self._kept.append(future)
        found = future.result(_WAIT)
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        (holders,) = self._client.who_has([future]).values()
        return {"found": found, "workers": [workers[each]["name"] for each in holders]}

    def read(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Read a file by a lambda on a worker and return its size."""
        path = Path(command["path"])
        future = self._client.submit(lambda: len(path.read_bytes()), pure=False)
        return _outcome(lambda: future.result(_WAIT))

    def gather(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Request the result under a key."""
        return _outcome(lambda: self._named(command["key"]).result(_WAIT))

    def depend(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Submit a lambda whose argument is the result under a key."""

        def depend() -> Any:
            named = self._named(command["key"])
            return self._client.submit(lambda n: n + 1, named, pure=False).result(_WAIT)

        return _outcome(depend)

    def _named(self, key: str) -> Any:
        return Future(key, self._client, state="memory")

    def close(self) -> None:
        """Close the client, even if the scheduler has ended already."""
        if "_client" in vars(self):
            with contextlib.suppress(Exception):
                self._client.close(timeout=2)


def _outcome(request: Callable[[], Any]) -> dict[str, Any]:
    """Return what *request* returns, or how it was refused."""
    try:
        return {"found": request()}
    except SafeserError as error:
        return {"refused": error.rule}
    except PermissionError as error:
        return {"refused": f"PermissionError: {error.strerror}"}


def main(address: str) -> None:
    """Serve one command after another."""
    pipe = Pipe.of_this_process()
    with contextlib.closing(GroupUser(address)) as user:
        pipe.serve(user.answer)


if __name__ == "__main__":
    main(sys.argv[1])
