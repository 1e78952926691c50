"""Reduced trees with other tokens: read, judged, built, and what came of them used.

The one rule it checks: whatever the tokens of a tree are, reading gives a program or a
SafeserError, building gives a value or a SafeserError, and no use of that value ends the process,
hangs it, or breaks Python's own rules.

    python -m verification.fuzz.trees --state FOLDER [--seconds 900] [--case NUMBER]

A case is the tree of an honest value, one to three of whose tokens are others
(:mod:`verification.cases`).
"""

from __future__ import annotations

import contextlib
import io
import pickle
from random import Random
from typing import Any

import msgpack

from safeser import pickles
from safeser.pickles import Budget
from safeser.pickles.reading.machine import read
from safeser.pickles.trees.operations import Operation
from safeser.pickles.trees.writing import write
from verification.cases import Case, Tool, main
from verification.fuzz.values import LIMITS, PROFILE, known, used

_ODD = (None, True, -1, 0, 1, 1 << 40, 1 << 63, 1.5, float("nan"), "", "a:b", "f8", b"", b"\0" * 16)


def of_value(value: Any, chance: Random) -> Case:
    held: list[Any] = []
    data = pickle.dumps(value, 5, buffer_callback=held.append)
    buffers = [bytearray(buffer.raw()) for buffer in held]
    unpacker = msgpack.Unpacker()
    unpacker.feed(write(read(data, buffers=len(held), limits=LIMITS)))
    tokens = list(unpacker)
    changes = [_changed(tokens, chance) for _ in range(chance.choice((1, 1, 2, 3)))]
    tree = b"".join(map(msgpack.packb, tokens))
    return Case(tree, buffers, f"{type(value).__name__}: {'; '.join(changes)}")


def _changed(tokens: list[Any], chance: Random) -> str:
    at = chance.randrange(len(tokens))
    kind = chance.randrange(5)
    new: Any = chance.choice(_ODD)
    if kind == 0:
        new = chance.choice(tokens)
    elif kind == 1 and type(tokens[at]) is list:
        new = [tokens[at][0] + chance.choice((-2, -1, 1, 2))]
    elif kind == 2:
        new = [chance.randrange(-3, 20)]
    elif kind == 3:
        new = int(chance.choice(list(Operation)))
    elif type(tokens[at]) is int:
        new = tokens[at] + chance.choice((-1, 1, 255, 1 << 31))
    old, tokens[at] = tokens[at], new
    return f"{at}: {old!r:.60} -> {new!r:.60}"


def run(data: bytes, buffers: Any) -> str:
    def load() -> Any:
        count = len(buffers)
        parsed = pickles.parse_tree(data, buffers=count, limits=LIMITS, budget=Budget(LIMITS))
        return parsed.judged(PROFILE, buffers=count).build(buffers, Budget(LIMITS))

    return used(load)


def prepare(_: Any) -> Tool:
    values = known()

    def make(number: int, chance: Random) -> Case:
        return of_value(values[number % len(values)], chance)

    tool = Tool(make, run)
    for number in range(len(values)):  # here, so that no child imports what another has imported
        try:
            case = make(number, Random(number))
        except Exception:  # what pickle or msgpack cannot write is no case
            continue
        with contextlib.redirect_stdout(io.StringIO()):  # some are used by printing
            run(case.data, case.buffers)
    print(f"{len(values)} values", flush=True)
    return tool


if __name__ == "__main__":
    raise SystemExit(main(__doc__, prepare, state=".fuzz/trees", seconds=900))
