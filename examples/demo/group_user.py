"""The program of dana and erin, each of whom submits tasks to the cluster of one group.

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

import safeser
from examples.demo.pipe import Pipe
from safeser.errors import SafeserError

__all__ = ["GroupUser", "main"]

_WAIT = 120.0  # seconds, for a busy machine


class GroupUser:
    """A client whose methods are the commands of this program."""

    def __init__(self, address: str) -> None:
        self._address = address

    @cached_property
    def _client(self) -> Any:
        """The client, which connects at the first command: the scheduler may start later."""
        return safeser.Client(self._address, timeout=_WAIT)

    def answer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run the method that *command* names."""
        result: dict[str, Any] = getattr(self, command["do"])(command)
        return result

    def meet(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for the worker; return the confinement probes that it reports as passed."""
        del command
        self._client.wait_for_workers(1, timeout=_WAIT)
        (known,) = self._client.scheduler_info(n_workers=-1)["workers"].values()
        return {"probes": known.get("safeser-confined", {}).get("probes", [])}

    def compute(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run a lambda and return its result."""
        del command
        return {"found": self._client.submit(lambda n: sum(range(n)), 1000).result(_WAIT)}

    def read(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Read a file by a lambda on a worker and return its size."""
        path = Path(command["path"])
        future = self._client.submit(lambda: len(path.read_bytes()), pure=False)
        return _outcome(lambda: future.result(_WAIT))

    def visit(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Connect to a cluster with this user's key and return how many workers it has."""

        def visit() -> int:
            with safeser.Client(command["address"], timeout=_WAIT, set_as_default=False) as client:
                return len(client.scheduler_info(n_workers=-1)["workers"])

        return _outcome(visit)

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
