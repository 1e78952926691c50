"""Attackers with a valid key and without safeser's checks: bob's client, and a rogue worker.

Only the attacker's own process is changed: it sends any message under the key that it holds. The
process under attack is unmodified.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from distributed import Worker
from distributed.protocol.serialize import Pickled, Serialized

from examples.demo.messages import evil, evil_value, payload

__all__ = ["AsIs", "RogueWorker", "bypass_client_checks", "bypass_worker_checks"]


class AsIs(dict[str, Any]):
    """A message that is sent unchanged."""


def _leaf(leaf: Any) -> Any:
    """Return a payload row unchanged: no policy, no conversion, no check."""
    from safeser.dask.wire.codec import PayloadRow

    if isinstance(leaf, Pickled):
        # Every recipient loads these, on safeser:// as on stock Dask.
        return PayloadRow(
            {"serializer": "pickle", "writeable": []}, (leaf.header["pickled-obj"],)
        ), True
    assert isinstance(leaf, Serialized)
    header = {k: list(v) if isinstance(v, tuple) else v for k, v in leaf.header.items()}
    return PayloadRow(header, tuple(leaf.frames)), False


def _frames(message: Any) -> list[Any]:
    from safeser.dask.wire.codec import Encoder

    encoder = Encoder()
    elements = message if isinstance(message, list) else [message]
    for element in elements:
        encoder.add(element, _leaf)
    return encoder.frames(listed=isinstance(message, list))


def bypass_client_checks() -> None:
    """Make this client send any message unchanged, and accept any answer."""
    from safeser.dask.messages.conversation import Conversation
    from safeser.dask.wire.codec import parse, substitute
    from safeser.families.plain import DEFAULTS

    def send(self: Any, message: Any, serializers: Sequence[str] | None = None) -> list[Any]:
        return _frames(message)

    def receive(self: Any, verified: Any, deserializers: Sequence[str] | None) -> Any:
        parsed = parse(verified.frames, DEFAULTS)
        raw = {i: Serialized(dict(r.header), list(r.frames)) for i, r in enumerate(parsed.rows)}
        return substitute(parsed.body, raw)

    Conversation.send = send  # type: ignore[method-assign]  # an attacker does the same
    Conversation.receive = receive  # type: ignore[method-assign]  # as above


def bypass_worker_checks() -> None:
    """Make this worker send :class:`AsIs` messages unchanged, and all others as usual."""
    from safeser.dask.messages import translate
    from safeser.dask.wire.codec import Encoder

    honest_outgoing, honest_add = translate.outgoing, Encoder.add

    def outgoing(message: Any, **options: Any) -> Any:
        return message if isinstance(message, AsIs) else honest_outgoing(message, **options)

    def add(self: Any, element: Any, default: Any, ceiling_of: Any = None) -> None:
        if isinstance(element, AsIs):
            honest_add(self, element, _leaf)
        else:
            honest_add(self, element, default, ceiling_of)

    translate.outgoing = outgoing
    Encoder.add = add  # type: ignore[method-assign]  # as above


class RogueWorker(Worker):  # type: ignore[misc]  # distributed has no types
    """A worker that computes as usual, except for the keys that name an attack.

    :param markers: folder of the files that its payloads would create.
    """

    def __init__(self, scheduler: str, *, markers: Path, **options: Any) -> None:
        self._markers = markers
        super().__init__(scheduler, **options)

    async def get_data(self, comm: Any, keys: Any, **options: Any) -> Any:
        """Answer a request for the key of attack ``error-reply`` with a pickled exception."""
        for key in keys:
            if str(key).startswith("error-reply"):
                marker = self._markers / str(key)
                exception = evil(marker) if str(key).endswith("-0") else payload(marker)
                return AsIs(
                    status="uncaught-error",
                    exception=exception,
                    traceback=None,
                    exception_text="an error",
                    traceback_text="",
                )
        return await super().get_data(comm, keys=keys, **options)

    def batched_send(self, msg: dict[str, Any]) -> None:
        """Add the attacks ``result-type`` and ``warn-event`` to the reports on their keys."""
        key = str(msg.get("key", "")) if msg.get("op") == "task-finished" else ""
        if key.startswith("result-type"):
            msg = AsIs({**msg, "type": evil(self._markers / key)})
        super().batched_send(msg)
        if key.startswith("warn-event"):
            marker = self._markers / key
            event = {
                "message": evil_value(marker, "a warning"),
                "category": evil_value(marker, UserWarning),
            }
            super().batched_send(AsIs(op="log-event", topic="warn", msg=event))


def main(scheduler: str, markers: Path, scratch: str) -> None:
    """Run a rogue worker until the demo ends it."""
    import asyncio

    from examples.demo.pipe import Pipe

    pipe = Pipe.of_this_process()

    async def work() -> None:
        async with RogueWorker(
            scheduler,
            markers=markers,
            host="127.0.0.1",
            nthreads=1,
            dashboard=False,
            local_directory=scratch,
        ) as worker:
            commands = pipe.commands()
            while (command := await asyncio.to_thread(next, commands, None)) is not None:
                del command  # "meet" is the only one
                pipe.tell("done", address=worker.address)

    if scheduler.startswith("safeser://"):
        bypass_worker_checks()
    asyncio.run(work())


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
