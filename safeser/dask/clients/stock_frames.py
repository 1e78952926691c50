"""Fetch from a stock cluster as safeser's typed values what it writes otherwise.

The one rule: one writer and one reader. Stock Dask sends pandas objects only as pickles, which a
guarded client never opens, and objects of SciPy and some of NumPy's in forms of its own; but the
cluster runs what its client submits. So the client submits :func:`write_value` with
:func:`writer_source`, safeser's own code for family ``dask``, which writes a value there, and reads
the answer as it reads any typed value: same checks, same bounds of :mod:`safeser.types`.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from safeser import families
from safeser.dask.contents.unreadable import unreadable
from safeser.errors import PayloadError
from safeser.families import plain, tree
from safeser.gate.values import Grant, Limits

__all__ = ["rebuild_value", "write_value", "writer_source"]

#: Arrays came because policy lets family dask in; what they spell is of no other family.
_GRANT = Grant(context="", families=("dask",))

#: The packages that family dask is written by; modules directly in safeser come with them.
_WRITING = frozenset(
    {"allowed", "families", "gate", "operations", "pickles", "tokens", "trace", "types"}
)

#: Modules, and tables that they read.
_SUFFIXES = frozenset({".py", ".toml", ".txt"})

#: A guarded client reads nothing else from such an answer.
_TYPES = frozenset(
    {
        "array:array",
        "builtins:bytearray",
        "builtins:memoryview",
        "datetime:timedelta",
        "numpy.ma:MaskedArray",
        "numpy.ma:masked",
        "numpy:generic",
        "numpy:matrix",
        "numpy:ndarray",
        "numpy:str_",
        "pandas:DataFrame",
        "pandas:Index",
        "pandas:MultiIndex",
        "pandas:NA",
        "pandas:NaT",
        "pandas:RangeIndex",
        "pandas:Series",
        "pandas:Timedelta",
        "pandas:Timestamp",
        *(
            f"scipy.sparse:{layout}_{form}"
            for layout in ("bsr", "coo", "csc", "csr", "dia")
            for form in ("array", "matrix")
        ),
    }
)
_UNTYPED = frozenset({"msgpack", "collection"})


@cache
def writer_source() -> bytes:
    """Return the code that writes family ``dask``, as a zip file that Python imports from."""
    root, packed = Path(families.__file__).parents[1], io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            parts = path.relative_to(root).parts
            if path.suffix in _SUFFIXES and (len(parts) == 1 or parts[0] in _WRITING):
                archive.write(path, Path(root.name, *parts))
    return packed.getvalue()


def write_value() -> Callable[[Any, bytes], list[Any] | None]:
    """Return the function that the cluster runs: a value to a typed header and its frames.

    It is local, so that it travels by value: the cluster has no safeser. It returns arrays of
    bytes, the header in msgpack first, or None for a value that cannot be written there.
    """

    def write(value: Any, source: bytes) -> list[Any] | None:
        import sys
        import tempfile

        try:
            if "safeser" not in sys.modules:
                file = tempfile.NamedTemporaryFile(suffix=".zip")  # noqa: SIM115 - see below
                file.write(source)
                file.flush()
                sys.path.append(file.name)
                try:
                    import safeser
                finally:
                    sys.path.remove(file.name)
                # Modules are read from it when they are first needed. Of two threads that come
                # here, one does not know of the other.
                vars(safeser).setdefault("_sources", []).append(file)
            import numpy as np

            from safeser import families
            from safeser.families import plain

            header, frames = families.serialize(value, ("dask", "msgpack"))
            head = plain.encode(header)
        except Exception:
            return None
        return [np.frombuffer(part, "u1") for part in (head, *frames)]

    return write


def rebuild_value(arrays: Any, limits: Limits) -> Any:
    """Return the value that a cluster wrote by :func:`write_value`.

    :param arrays: what came as the result of that task, from a cluster that may be hostile.
    :raises PayloadError: if it is not a header and its frames, is of another type than is listed
        here, or is out of any bound of a typed value.
    """
    if type(arrays) is not list or not arrays or not all(map(_is_run, arrays)):
        _malformed("its parts are not arrays of bytes")
    head, *frames = arrays
    header = plain.decode(head.tobytes(), limits=limits)
    if type(header) is not dict:
        _malformed("its header is no dictionary")
    for node in tree.parse(header, frames, limits=limits):
        if node.serializer not in _UNTYPED and node.type not in _TYPES:
            unreadable(node.type or node.serializer)
    return families.deserialize(header, frames, _GRANT, limits=limits)


def _is_run(array: Any) -> bool:
    """Whether *array* is bytes in a row: one byte that is seen many times takes no memory."""
    return (
        type(array) is np.ndarray
        and array.dtype == np.uint8
        and array.ndim == 1
        and bool(array.flags.c_contiguous)
    )


def _malformed(problem: str) -> NoReturn:
    raise PayloadError(
        f"the cluster's answer is not a value that safeser's function wrote: {problem}",
        rule="stock.apart",
        fix="An unmodified Dask worker does not send this. If the cluster is yours, report the type"
        " of the value and the cluster's versions of distributed and pandas.",
    )
