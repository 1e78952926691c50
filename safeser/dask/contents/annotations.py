"""Check annotations of a graph: workers, priorities, retries and resources of its tasks.

The one rule: annotations are plain values of the types that Dask's scheduler computes with, and fit
into the messages that it sends about them. Dask checks none of this: a priority of 2 ** 70 cannot
be written into a message, so that the stream to each worker in turn breaks with it; a text where a
number is added ends ``update_graph`` half way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from safeser.errors import PolicyDenied

__all__ = ["can_be_sent", "check_annotation", "check_beside", "require_small"]

_PLAIN = (str, bytes, int, float, bool, type(None), np.int64, np.float64, np.bool_)
#: Deeper than annotations nest in practice.
_MAX_NESTING = 8
#: Far less than what messages may be nested.
_DEEPEST = 32
#: Dask sends the negative of a priority; msgpack has 64 bits for both.
_INT63 = 1 << 63
_MAX_RETRIES = 1 << 31
#: Dask makes each span above one from the outermost on: a thousand took it three seconds.
_MAX_SPANS = 32
#: The scheduler looks at each worker and resource that a task names, for each such task.
_MAX_WORKERS = 200
_MAX_RESOURCES = 100
#: Characters beside one task, and as many more for each part: all of it is looked through and sent
#: with each such task, and a megabyte is some ten thousand tasks.
_MAX_SIZE = 20_000
_PART = 64


def check_beside(fields: Mapping[str, Any]) -> None:
    """Refuse what steers the scheduler beside a graph, but for plain values."""
    for value in fields.values():
        check_plain(value)
    annotations, priorities = fields.get("annotations"), fields.get("user_priority")
    if not isinstance(annotations, dict | None):
        raise _refusal("annotations")
    require_small(sum(check_annotation(*pair) for pair in (annotations or {}).items()))
    for value in priorities.values() if isinstance(priorities, dict) else [priorities]:
        check_annotation("priority", value)
    for name, fits in _OF_SPANS.items():
        if fields.get(name) and not fits(fields[name]):
            raise _refusal(name)


def check_plain(value: Any, depth: int = 0) -> None:
    """Refuse anything but plain values: a scheduler calls annotations that can be called."""
    if type(value) in _PLAIN:
        if not _is_sendable(value):
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
        return _is_sendable(value)
    if kind is dict:
        value = (part for pair in value.items() for part in pair)
    elif kind not in (list, tuple, set, frozenset):
        return True
    return depth < _DEEPEST and all(can_be_sent(part, depth + 1) for part in value)


def check_annotation(name: Any, value: Any) -> int:
    """Refuse the annotation *name* of a task, or of all of them, that Dask cannot compute with.

    Return how much it adds to each message about such a task.
    """
    check_plain(value)
    expected = _KINDS.get(name)
    if value is not None and expected is not None and not expected(value):
        raise _refusal(name)
    return _size(name) + _size(value)


def require_small(size: int) -> None:
    """Refuse annotations of one task that are of more than some *size* together."""
    if size > _MAX_SIZE:
        raise PolicyDenied(
            f"the annotations of a task take {size} characters, {_PART} for each part of them among"
            f" those, and may take {_MAX_SIZE}: they are sent with each such task",
            rule="submission.annotation",
            fix="Pass what tasks need as an argument, and keep what describes them short.",
        )


def _size(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value) + _PART
    if isinstance(value, dict):
        return _PART + sum(_size(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return _PART + sum(map(_size, value))
    return _PART


def _refusal(name: str) -> PolicyDenied:
    return PolicyDenied(
        f"the annotation {name!r} is not of the kind that Dask's scheduler takes",
        rule="submission.annotation",
        fix="Annotate as Dask's documentation has it.",
    )


def _is_sendable(value: Any) -> bool:
    if type(value) is int:
        return -_INT63 < value < _INT63
    if type(value) is str and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:  # half of a pair that stands for a character
            return False
    return True


def _is_number(value: Any) -> bool:
    return type(value) in (int, float, np.int64, np.float64) and math.isfinite(value)


def _is_one_or_some(value: Any, kinds: Collection[type]) -> bool:
    some = type(value) in (list, tuple, set, frozenset)
    return type(value) in kinds or (some and all(type(part) in kinds for part in value))


def _are_workers(value: Any) -> bool:
    # By their addresses, hosts or names: those of a local cluster are numbers.
    named = _is_one_or_some(value, (str, int))
    return named and (type(value) in (str, int) or len(value) <= _MAX_WORKERS)


def _is_span(value: Any) -> bool:
    if type(value) is not dict or value.keys() != {"name", "ids"}:
        return False
    names, ids = value["name"], value["ids"]
    kinds = (list, tuple)
    return (
        type(names) in kinds
        and type(ids) in kinds
        and 0 < len(names) == len(ids) <= _MAX_SPANS
        and _is_one_or_some(names, (str,))
        and _is_one_or_some(ids, (str,))
    )


def _are_resources(value: Any) -> bool:
    # Less than nothing would be added to what other tasks of the worker may take.
    if type(value) is not dict or len(value) > _MAX_RESOURCES:
        return False
    return all(type(name) is str and _is_number(much) and much >= 0 for name, much in value.items())


_KINDS: dict[Any, Callable[[Any], bool]] = {
    "priority": _is_number,
    "retries": lambda value: type(value) is int and 0 <= value < _MAX_RETRIES,
    "workers": _are_workers,
    "restrictions": _are_workers,
    "allow_other_workers": lambda value: type(value) is bool,
    "loose_restrictions": lambda value: type(value) is bool,
    "resources": _are_resources,
    "span": _is_span,
}


def _is_metadata(value: Any) -> bool:
    # What other clients' graphs say is added to the list of the first graph of a span.
    return type(value) is dict and type(value.get("collections")) in (list, tuple)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


#: What Dask's spans keep of a graph.
_OF_SPANS: dict[str, Callable[[Any], bool]] = {"span_metadata": _is_metadata, "code": _is_hashable}
