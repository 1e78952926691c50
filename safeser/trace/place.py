"""The place in the user's code from which something is called."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

__all__ = ["frame_of_caller", "notebook_cell", "place_of_caller"]

#: Packages whose frames are between the user's code and a serializer.
_BETWEEN = frozenset(
    {
        *("cloudpickle", "cytoolz", "dask", "distributed", "safeser", "tlz", "toolz", "tornado"),
        *sys.stdlib_module_names,
    }
)

#: Frames that are looked at: a recursion of the user's own is deeper than any library's.
_DEEPEST = 200


def place_of_caller() -> str:
    """Return the innermost place outside of libraries, ``file.py, line 3, in f``, or nothing.

    A callback of an event loop has none: what it sends was submitted earlier.
    """
    frame = frame_of_caller()
    if frame is None:
        return ""
    code = frame.f_code
    file = notebook_cell(code.co_filename) or Path(code.co_filename).name
    within = "" if code.co_name == "<module>" else f", in {code.co_name}"
    return f"{file}, line {frame.f_lineno}{within}"


def frame_of_caller() -> FrameType | None:
    """Return the innermost frame outside of libraries, or None.

    A coroutine's own frames are between those of its loop and the serializer.
    """
    frame: FrameType | None = sys._getframe(1)
    for _ in range(_DEEPEST):
        if frame is None:
            return None
        module = frame.f_globals.get("__name__")
        if module == "asyncio.events":
            return None  # a callback: what is below it runs the event loop
        if type(module) is str and module.partition(".")[0] not in _BETWEEN:
            return frame
        frame = frame.f_back
    return None


def notebook_cell(filename: str) -> str:
    """Return the cell that IPython compiled as *filename*, or nothing if it compiled none."""
    shell = sys.modules.get("IPython")
    current = None if shell is None else shell.get_ipython()
    if current is None:
        return ""
    number = getattr(current.compile, "_filename_map", {}).get(filename)
    return "" if number is None else f"notebook cell {number}"
