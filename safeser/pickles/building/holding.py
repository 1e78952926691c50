"""Name the class of a pickle's value in the error that refuses the pickle.

The one rule: the name is reported and never trusted. Nothing is imported, and only small pickles
are read, so a large refused pickle costs the receiver no work.
"""

from __future__ import annotations

from typing import Any

from safeser.errors import PayloadError
from safeser.gate.values import ELEMENT, Limits
from safeser.pickles.failures import class_name
from safeser.pickles.names import shown
from safeser.pickles.nodes import KINDS, Call, GlobalRef
from safeser.pickles.reading.machine import read

__all__ = ["held_by"]

#: Reading this much takes some milliseconds. Larger ones are refused without a name.
_MAX_BYTES = 1 << 16
_LIMITS = Limits(max_bytes=_MAX_BYTES, max_memory=5000 * ELEMENT, max_calls=500)

#: Functions that make an object of the class that is their first argument.
_MAKERS = frozenset(
    {
        "copyreg:_reconstructor",
        "copyreg:__newobj__",
        "tblib.pickling_support:unpickle_exception",
        "tblib.pickling_support:unpickle_exception_with_attrs",
    }
)


def held_by(data: bytes) -> str:
    """Return the class, function or kind of value that the pickle *data* makes, or ``""``."""
    if len(data) > _MAX_BYTES:
        return ""
    try:
        root = read(data, buffers=None, limits=_LIMITS).root
    except PayloadError:
        return ""
    return _named(root)


def _named(node: Any) -> str:
    if not isinstance(node, Call):
        kind = KINDS.get(type(node), type(node).__name__.lower())
        return shown(node.name) if isinstance(node, GlobalRef) else kind
    callee, items = node.callee, node.args.items
    if isinstance(callee, GlobalRef) and callee.name in _MAKERS and items:
        callee = items[0]
    return class_name(callee)
