"""Forged values of NumPy, pandas, Arrow, SciPy and the standard library: loaded, and then used.

The one rule it checks: whatever the parts of a value are, restricted pickle gives a value or a
SafeserError, and no use of that value ends the process, hangs it, or breaks Python's own rules.

    python -m verification.fuzz.values --state FOLDER [--seconds 3600] [--case NUMBER]

A case is a value, one to three of whose parts are others (:mod:`verification.cases`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import random
import resource
from collections.abc import Callable, Collection, Iterator
from typing import Any

# A forked child hangs in OpenMP if its parent has used threads of it.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", ARROW_IO_THREADS="1")

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings

from safeser import pickles
from safeser.errors import SafeserError
from safeser.gate.values import Limits
from tests.samples import seeds
from tests.samples.uses import BROKEN, uses
from tests.types import strategies
from verification.cases import Case, Tool, main
from verification.fuzz.forging import changed

PROFILE = pickles.Profile.named(*pickles.DATA_PROFILES)
#: Small, so that what they let through is quick to use.
LIMITS = Limits(max_array=1 << 20, max_memory=20_000 << 7, max_bytes=1 << 20)
GENERATED = 2500
#: Bytes of memory that the uses of a value may take; the limits above let 1 MiB of it in.
GROWTH = 1 << 30
_LARGE = 6000
_UNCHANGED = (str, bytes, type(None), bool, int, float)


def known() -> list[Any]:
    """Return values of every type that restricted pickle loads, few of them large."""
    held = [part for value in _stated() for part in (value if type(value) is tuple else [value])]
    made = [value for value in (*held, *_generated()) if not isinstance(value, _UNCHANGED)]
    return [value for value in made if _is_small(value)]


def _stated() -> Iterator[Any]:
    yield from (*seeds.plain(), *seeds.rarer(), *seeds.arrays(), *seeds.frames(), *seeds.tables())
    yield from seeds.models()


def _generated() -> list[Any]:
    found: list[Any] = []

    @settings(
        max_examples=GENERATED,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategies.values())
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    return found


def _is_small(value: Any) -> bool:
    if "scipy.sparse" in type(value).__module__ and max(value.shape) > _LARGE:
        return False
    try:
        return len(pickle.dumps(value)) < _LARGE
    except Exception:  # what pickle cannot write, or would never end with
        return False


def _is_own(value: Any) -> bool:
    """Whether the parts of *value* may be others: whatever is made by a call, but no function."""
    return not hasattr(value, "__qualname__")


def of_value(value: Any, strangers: list[Any], chance: random.Random) -> Case:
    """Return the pickle of *value* with some of its parts, and perhaps a buffer, changed."""
    buffers: list[Any] = []
    options: dict[str, Any] = {"protocol": chance.choice((2, 4, 5, 5)), "deep": 5}
    if options["protocol"] == 5 and chance.random() < 0.5:
        options["buffer_callback"] = lambda held: buffers.append(bytearray(held.raw()))
    data, changes = changed(value, chance, strangers, _is_own, **options)
    if buffers and chance.random() < 0.2:
        at = chance.randrange(len(buffers))
        changes.append(f"buffer {at} cut")
        buffers[at] = buffers[at][: chance.randint(0, len(buffers[at]))]
    elif buffers and chance.random() < 0.2:
        changes.append("buffers read-only")
        buffers = [bytes(held) for held in buffers]
    return Case(data, buffers, f"{type(value).__name__}: {'; '.join(changes)}")


def _strangers(chance: random.Random) -> list[Any]:
    import pandas as pd

    kinds = (np.ndarray, np.matrix, np.recarray, np.char.chararray, np.void, np.float64, dict, list)
    return [
        chance.choice(kinds),
        chance.choice((pd.Timestamp("2026"), pd.NaT, pd.NA, pd.Timedelta(1), pd.RangeIndex(3))),
        chance.choice((np.arange(4), np.zeros((2, 2), "?"), np.array(["a"]), np.array([[None]]))),
        chance.choice((np.dtype("i4"), np.dtype("O"), np.dtype([("a", "f8")]))),
    ]


def used(load: Callable[[], Any]) -> str:
    """Do with what *load* returns what people do, and return what became of it."""
    try:
        found = load()
    except SafeserError as error:
        return "refused" if error.rule else "broken: no rule"
    before = _peak()
    for use in uses(found):
        try:
            use()
        except MemoryError:  # an answer, where the memory was asked for and never had
            continue
        except BROKEN as error:
            return f"broken: {type(error).__name__} {str(error)[:80]!r}"
        except Exception:  # whatever else Python answers is an answer
            continue
    return "used" if _peak() - before < GROWTH or _stands_for_more(found) else "exhausted"


def _stands_for_more(value: Any) -> bool:
    """Whether *value* is or holds a sparse matrix, which may stand for more than any memory."""
    items = value.values() if isinstance(value, dict) else getattr(value, "flat", value)
    held = itertools.islice(items, 50) if isinstance(value, Collection) else ()
    parts = (getattr(value, name, None) for name in ("start", "stop", "step"))
    return any("scipy.sparse" in type(part).__module__ for part in (value, *held, *parts))


def _peak() -> int:
    """Return the most bytes of memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def run(data: bytes, buffers: Any) -> str:
    return used(lambda: pickles.loads(data, buffers=buffers, profile=PROFILE, limits=LIMITS))


def prepare(_: Any) -> Tool:
    values = known()
    for value in values:  # here, so that no child imports what another has imported
        with contextlib.suppress(SafeserError):
            pickles.loads(pickle.dumps(value), profile=PROFILE, limits=LIMITS)
    print(f"{len(values)} values", flush=True)

    def make(number: int, chance: random.Random) -> Case:
        strangers = [*chance.sample(values, 4), *_strangers(chance)]
        return of_value(values[number % len(values)], strangers, chance)

    return Tool(make, run)


if __name__ == "__main__":
    raise SystemExit(main(__doc__, prepare, state=".fuzz/values"))
