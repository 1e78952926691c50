"""Reduced trees with other tokens: read, judged, built, and what came of them used.

The one rule it checks: whatever the tokens of a tree are, reading gives a program or a
SafeserError, building gives a value or a SafeserError, and no use of that value ends the process,
hangs it, or breaks Python's own rules.

    python -m verification.fuzz.trees --state FOLDER [--seconds 900] [--case NUMBER]

Each case is a number, from which it can be made again: the tree of an honest value, one to three of
whose tokens are others. Cases run in a child, which a crash ends.
"""

from __future__ import annotations

import argparse
import faulthandler
import pickle
import random
import time
import warnings
from pathlib import Path
from typing import Any

import msgpack

from safeser import pickles
from safeser.errors import SafeserError
from safeser.pickles import Budget
from safeser.pickles.reading.machine import read
from safeser.pickles.trees.operations import Operation
from safeser.pickles.trees.writing import write
from tests.samples.uses import BROKEN, uses
from verification.fuzz.children import Runner
from verification.fuzz.values import LIMITS, PATIENCE, PROFILE, Kept, known

_ODD = (None, True, -1, 0, 1, 1 << 40, 1 << 63, 1.5, float("nan"), "", "a:b", "f8", b"", b"\0" * 16)


class Case:
    """What one number stands for: the tokens of a value's tree, some of them changed."""

    def __init__(self, number: int, values: list[Any]) -> None:
        chance = random.Random(number)
        self.value = values[number % len(values)]
        self.changes: list[str] = []
        self.buffers: list[bytearray] = []
        held: list[Any] = []
        data = pickle.dumps(self.value, 5, buffer_callback=held.append)
        self.buffers = [bytearray(buffer.raw()) for buffer in held]
        program = read(data, buffers=len(held), limits=LIMITS)
        unpacker = msgpack.Unpacker()
        unpacker.feed(write(program))
        tokens = list(unpacker)
        for _ in range(chance.choice((1, 1, 2, 3))):
            self.change(tokens, chance)
        self.data = b"".join(map(msgpack.packb, tokens))

    def change(self, tokens: list[Any], chance: random.Random) -> None:
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
        self.changes.append(f"{at}: {tokens[at]!r:.60} -> {new!r:.60}")
        tokens[at] = new

    def __str__(self) -> str:
        return f"{type(self.value).__name__}: {'; '.join(self.changes)}"


def run(number: int, values: list[Any]) -> str:
    """Run one case, and return what became of it."""
    try:
        case = Case(number, values)
    except Exception:  # what cannot be pickled, or msgpack cannot write, is no case
        return "unwritable"
    buffers = case.buffers
    try:
        parsed = pickles.parse_tree(
            case.data, buffers=len(buffers), limits=LIMITS, budget=Budget(LIMITS)
        )
        found = parsed.judged(PROFILE, buffers=len(buffers)).build(buffers, Budget(LIMITS))
    except SafeserError as error:
        return "refused" if error.rule else "broken: no rule"
    for use in uses(found):
        try:
            use()
        except MemoryError:  # an answer, where the memory was asked for and never had
            continue
        except BROKEN as error:
            return f"broken: {type(error).__name__} {str(error)[:80]!r}"
        except Exception:  # whatever else Python answers is an answer
            continue
    return "used"


def fuzz(folder: Path, seconds: int) -> int:
    """Return 1 if this run, or one before in *folder*, found something."""
    kept, values = Kept(folder, "trees"), known()
    for number in range(len(values)):  # here, so that no child imports what another has imported
        run(number, values)
    print(f"{len(values)} values, from case {kept.next} on", flush=True)
    runner = Runner(
        run=lambda number: run(number, values),
        found=lambda number, ended: kept.find(number, ended, Case(number, values)),
        number=kept.next,
        end=time.monotonic() + seconds,
        patience=PATIENCE,
    )
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        runner.end = time.monotonic() + left
        runner.one_child()
        kept.save(runner, seconds - left)
    print(dict(runner.totals), flush=True)
    return bool(kept.findings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--state", type=Path, default=Path(".fuzz/trees"))
    parser.add_argument("--seconds", type=int, default=900)
    parser.add_argument("--case", type=int, help="run this one here, without a child")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.case is None:
        return fuzz(options.state, options.seconds)
    values = known()
    faulthandler.enable()
    print(Case(options.case, values), flush=True)
    print(run(options.case, values))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
