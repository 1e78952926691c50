"""Alice's process: a data scientist's program, with a witness installed before everything else.

The one rule: no module that could keep a reference to an unpickler is imported before the probe is
in place, and what the probe saw is reported as it is.

Arguments: the scheduler's address. On ``safeser://`` she uses ``safeser.Client``; on ``tcp://``,
for comparison, the same program uses ``distributed.Client`` with the same arguments.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safeser.demo import probe
from safeser.demo.speech import Speech

__all__ = ["main"]

_WAIT = 30.0
_VICTIM = 1.0  # an attacked gather fails at once or asks again for ever


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


class _Alice:
    """What she can be asked to do."""

    def __init__(self, client: Any, speech: Speech, witness: probe.Probe) -> None:
        self._client = client
        self._speech = speech
        self._witness = witness
        self._rogue: list[tuple[Any, Any]] = []

    def meet(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Wait for the workers and tell their addresses."""
        self._client.wait_for_workers(command["workers"], timeout=_WAIT)
        return {"workers": sorted(self._client.scheduler_info(n_workers=-1)["workers"])}

    def work(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Do the work, and say what each step gave.

        Asked to, she goes on after a step that fails: stock Dask cannot do everything that she asks
        of it with these deserializers.
        """
        from safeser.demo import work

        def progress(done: int, of: int) -> None:
            self._speech.tell("progress", done=done, of=of)

        failed = []
        for what, step in work.steps(self._client, progress=progress):
            try:
                found = step()
            except Exception as error:  # each of them is reported, or ends the work
                if not command.get("go_on"):
                    raise
                failed.append(f"{what}: {type(error).__name__}: {error}"[:200])
            else:
                self._speech.tell("step", what=what, found=found)
        return {"failed": failed}

    def meet_rogue(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Have a task computed by the rogue worker and gather its result from there.

        What comes of it is judged by the marker file and the records: after an answer that makes no
        sense Dask's client asks for the result again and again.
        """
        future = self._client.submit(
            lambda: 1, key=command["key"], workers=[command["worker"]], pure=False
        )
        gathering = asyncio.run_coroutine_threadsafe(
            _gather(self._client, future), self._client.loop.asyncio_loop
        )
        self._rogue.append((future, gathering))
        finished, _ = concurrent.futures.wait([gathering], timeout=_VICTIM)
        return {"answered": bool(finished)}

    def let_go(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Give up what the rogue worker was asked for."""
        del command
        for future, _ in self._rogue:
            with contextlib.suppress(Exception):  # as above
                future.cancel()
        # A request for data that is cancelled before it is sent stays the one that Dask's client
        # joins all later ones to, and those fail: so each may end by itself first.
        gatherings = [gathering for _, gathering in self._rogue]
        concurrent.futures.wait(gatherings, timeout=_VICTIM)
        for gathering in gatherings:
            gathering.cancel()
        self._rogue.clear()
        return {}

    def submit_code(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Submit a graph whose code makes a file, as she is granted it."""
        marker = Path(command["marker"])
        self._client.submit(marker.touch, pure=False).result(_WAIT)
        return {}

    def again(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Compute one thing more."""
        del command
        import numpy as np

        found = self._client.submit(lambda n: np.arange(n) ** 2, 5, pure=False).result(_WAIT)
        if type(found) is not np.ndarray or found.tolist() != [0, 1, 4, 9, 16]:
            raise ValueError("the squares are not right")
        return {"found": str(found)}

    def leave(self) -> None:
        """Close the client, even if the scheduler is gone already."""
        with contextlib.suppress(Exception):
            self._client.close(timeout=2)

    def witness(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Tell what the probe saw in this process."""
        del command
        return self._witness.report().as_dict()


def main(address: str) -> None:
    """Serve command after command."""
    witness = probe.install()
    speech = Speech.of_this_process()
    alice = None
    try:
        for command in speech.commands():
            try:
                if alice is None:
                    alice = _Alice(_connect(address), speech, witness)
                speech.tell("done", **getattr(alice, command["do"])(command))
            except Exception as error:  # whatever it is, the starter must hear of it
                speech.tell("failed", reason=f"{type(error).__name__}: {error}")
    finally:
        if alice is not None:
            alice.leave()


if __name__ == "__main__":
    main(sys.argv[1])
