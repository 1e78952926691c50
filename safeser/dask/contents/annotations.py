"""Check annotations of a graph: workers, priorities, retries and resources of its tasks.

The one rule: annotations are plain values, and fit into the messages that the scheduler sends about
them: it calls those that can be called, and a priority of 2 ** 70 cannot be written into a message,
so that the stream to each worker in turn breaks with it. What it computes with them is Dask's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from safeser.errors import PolicyDenied

__all__ = ["can_be_sent", "check_beside", "check_plain", "is_sendable"]

_PLAIN = (str, bytes, int, float, bool, type(None), np.int64, np.float64, np.bool_)
#: Deeper than annotations nest in practice.
_MAX_NESTING = 8
#: Far less than what messages may be nested.
_DEEPEST = 32
#: Dask sends the negative of a priority; msgpack has 64 bits for both.
_INT63 = 1 << 63


def check_beside(fields: Mapping[str, Any]) -> None:
    """Refuse what steers the scheduler beside a graph, but for plain values."""
    for value in fields.values():
        check_plain(value)


def check_plain(value: Any, depth: int = 0) -> None:
    """Refuse anything but plain values: a scheduler calls annotations that can be called."""
    if type(value) in _PLAIN:
        if not is_sendable(value):
            raise PolicyDenied(
                f"an annotation holds a {type(value).__name__} that no message can hold",
                rule="submission.annotation",
                fix="Annotate with numbers of up to 63 bits and text of Unicode characters.",
            )
    elif depth < _MAX_NESTING and type(value) in (list, tuple, set, frozenset):
        for part in value:
            check_plain(part, depth + 1)
    elif depth < _MAX_NESTING and type(value) is dict:
        for key, part in value.items():
            check_plain(key, depth + 1)
            check_plain(part, depth + 1)
    else:
        raise PolicyDenied(
            f"an annotation holds a {type(value).__name__}, and annotations are plain values",
            rule="submission.annotation",
            fix="Annotate with numbers, text and lists of them.",
        )


def can_be_sent(value: Any, depth: int = 0) -> bool:
    """Tell whether numbers and texts in *value*, a key or an annotation, fit into messages.

    What is neither travels as a payload, which fails by itself if it cannot.
    """
    kind = type(value)
    if kind is str or kind is int:
        return is_sendable(value)
    if kind is dict:
        value = (part for pair in value.items() for part in pair)
    elif kind not in (list, tuple, set, frozenset):
        return True
    return depth < _DEEPEST and all(can_be_sent(part, depth + 1) for part in value)


def is_sendable(value: Any) -> bool:
    """Tell whether a number or text fits into messages, its negative too; all else does."""
    if type(value) is int:
        return -_INT63 < value < _INT63
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a pair that stands for a character
            return False
    return True
