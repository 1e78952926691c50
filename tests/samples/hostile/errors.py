"""Described failures that no process writes."""

from __future__ import annotations

from safeser.families import plain
from tests.samples.typed import hostile

GOOD = ["builtins:ValueError", "x", ("x",), "", [], None, None, False, [], {}, []]
WRONG = [None, 5, b"x", {}, [5], ["x"] * 30, "y" * 200_000, {"a": 1}]
# Where the place is right for such a value; arguments that are None are told by their text.
RIGHT = {(2, 0), (5, 0), (6, 0), (9, 3), (9, 7)}
LINKS = [
    [[*GOOD[:5], 0, *GOOD[6:]]],  # its own cause
    [[*GOOD[:5], 1, *GOOD[6:]], [*GOOD[:5], 0, *GOOD[6:]]], [[*GOOD[:5], True, *GOOD[6:]], GOOD],
    [[*GOOD[:5], -1, *GOOD[6:]], GOOD], [[*GOOD[:8], [1.0], *GOOD[9:]], GOOD],
    [GOOD, GOOD],  # the second belongs to nobody
    [[*GOOD[:8], [1] * 33, *GOOD[9:]], GOOD], [[*GOOD[:9], {"__class__": 1}, *GOOD[10:]]],
    [[*GOOD[:9], {"a b": 1}, *GOOD[10:]]], [[*GOOD[:9], {1: 1}, *GOOD[10:]]],
    [[*GOOD[:9], {"a": b"x" * 100_000}, *GOOD[10:]]], [[*GOOD[:2], ("x" * 100_000,), *GOOD[3:]]],
]  # fmt: skip
SHAPES = [None, [], [[]], [GOOD] * 30, [GOOD[:10]], {"a": 1}]


def failure(links):
    return {"serializer": "error"}, [plain.encode(links)]


def wrong():
    """Yield a failure of which one part is of another kind."""
    for position in range(len(GOOD)):
        for number, value in enumerate(WRONG):
            if (position, number) not in RIGHT:
                yield [[*GOOD[:position], value, *GOOD[position + 1 :]]]


def repeated():
    """Yield groups that hold one member many times: 381 bytes were a traceback of 223 MB."""
    for places in ([[1, 1]], [[1, 2], [2]], [[1], [2, 3], [3]]):
        yield [[*GROUP[:8], members, *GROUP[9:]] for members in places] + [GOOD]


GROUP = ["builtins:ExceptionGroup", "g", ("g",), "", [], None, None, False, [1], {}, []]
REFUSED = (*LINKS, *SHAPES, *wrong(), *repeated())
HOSTILE = hostile(failure, {"families.error": [(one,) for one in REFUSED]})
