"""Alice's program: a data scientist's client, with a pickle probe installed before all imports.

No module that could keep a reference to an unpickler is imported before the probe is installed.

Argument: the scheduler's address. On ``safeser://`` the client is ``safeser.Client``; on
``tcp://``, for comparison, the same program uses ``distributed.Client`` with the same arguments.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from examples.demo import probe
from examples.demo.pipe import Pipe

__all__ = ["main"]

_WAIT = 120.0  # seconds, for a busy machine
_ATTACKED = 1.0  # an attacked gather fails at once or is repeated without end


def _connect(address: str) -> Any:
    arguments: dict[str, Any] = {"deserializers": ["dask", "msgpack"], "timeout": _WAIT}
    if address.startswith("safeser://"):
        import safeser

        return safeser.Client(address, **arguments)
    import distributed

    return distributed.Client(address, **arguments)


async def _gather(client: Any, future: Any) -> None:
    """Gather *future* as ``client.gather(..., direct=True)`` does."""
    from distributed import wait

    await wait(future)
    # A stock client under attack may fail in any way.
    with contextlib.suppress(Exception):
        await client._gather([future], direct=True)


class Alice:
    """A client whose methods are the commands of this program."""

    def __init__(self, address: str, pipe: Pipe, installed: probe.Probe) -> None:
        self._address = address
        self._pipe = pipe
        self._probe = installed
        self._attacked: list[tuple[Any, Any]] = []

    @cached_property
    def _client(self) -> Any:
        """The client, which connects at the first command."""
        return _connect(self._address)

    def answer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run the method that *command* names."""
        result: dict[str, Any] = getattr(self, command["do"])(command)
        return result

    def meet(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for the workers and return their addresses."""
        self._client.wait_for_workers(command["workers"], timeout=_WAIT)
        return {"workers": sorted(self._client.scheduler_info(n_workers=-1)["workers"])}

    def work(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run the workload and write an event for the result of each part.

        With ``go_on``, the next part follows one that fails: stock Dask does not support all of
        them with these deserializers.
        """
        from examples.demo import workload

        def progress(done: int, of: int) -> None:
            self._pipe.tell("progress", done=done, of=of)

        failed = []
        for what, part in workload.parts(self._client, progress=progress):
            try:
                found = part()
            except Exception as error:  # each is reported, or ends the workload
                if not command.get("go_on"):
                    raise
                failed.append(f"{what}: {type(error).__name__}: {error}"[:200])
            else:
                self._pipe.tell("part", what=what, found=found)
        return {"failed": failed}

    def meet_rogue(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run a task on the rogue worker and gather its result from there.

        The demo judges the outcome by the marker file and the audit log: after an invalid answer
        Dask's client requests the result again without end.
        """
        future = self._client.submit(
            lambda: 1, key=command["key"], workers=[command["worker"]], pure=False
        )
        gathering = asyncio.run_coroutine_threadsafe(
            _gather(self._client, future), self._client.loop.asyncio_loop
        )
        self._attacked.append((future, gathering))
        finished, _ = concurrent.futures.wait([gathering], timeout=_ATTACKED)
        return {"answered": bool(finished)}

    def cancel(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Cancel the requests to the rogue worker."""
        del command
        for future, _ in self._attacked:
            with contextlib.suppress(Exception):  # as in _gather
                future.cancel()
        # Dask's client joins later requests for data to a pending one. If that was cancelled before
        # it was sent, the later ones fail: so each may end by itself first.
        gatherings = [gathering for _, gathering in self._attacked]
        concurrent.futures.wait(gatherings, timeout=_ATTACKED)
        for gathering in gatherings:
            gathering.cancel()
        self._attacked.clear()
        return {}

    def submit_code(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Submit a graph whose code creates a file, as the policy permits her."""
        marker = Path(command["marker"])
        self._client.submit(marker.touch, pure=False).result(_WAIT)
        return {}

    def again(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Run one more task, after the attacks."""
        del command
        import numpy as np

        found = self._client.submit(lambda n: np.arange(n) ** 2, 5, pure=False).result(_WAIT)
        if type(found) is not np.ndarray or found.tolist() != [0, 1, 4, 9, 16]:
            raise ValueError("the squares are wrong")
        return {"found": str(found)}

    def probe_report(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Return the probe's counts for this process."""
        del command
        return self._probe.report().as_dict()

    def close(self) -> None:
        """Close the client, even if the scheduler has ended already."""
        if "_client" in vars(self):
            with contextlib.suppress(Exception):
                self._client.close(timeout=2)


def main(address: str) -> None:
    """Serve one command after another."""
    installed = probe.install()
    pipe = Pipe.of_this_process()
    with contextlib.closing(Alice(address, pipe, installed)) as alice:
        pipe.serve(alice.answer)


if __name__ == "__main__":
    main(sys.argv[1])
