"""Every sample, by what holds for all of them: see ``tests/samples``.

Honest values arrive as they were sent, at any address, in both spellings or in neither; whatever
is changed of how they travel gives a value or a SafeserError. Hostile payloads are refused, each by
its own rule. None takes more memory than a few times what arrived.
"""

from __future__ import annotations

import sys
import tracemalloc

import pytest

from safeser import families
from safeser.errors import SafeserError
from safeser.families.registry import registry
from tests.draws import FAST
from tests.samples.hostile import HOSTILE, UNSENT
from tests.samples.same import same
from tests.samples.typed import (
    GRANT,
    LIMITS,
    attacks,
    refused,
    sent,
    shifted,
    survives,
    unsent,
)
from tests.samples.uses import BROKEN, uses
from tests.samples.values import collect, collect_all
from tests.types.both import compared
from tests.types.strategies import SPELT_TWICE

pytestmark = pytest.mark.filterwarnings("ignore")

HONEST = collect_all()
#: How many changes are tried of all values of one type.
CHANGES = 15 if FAST else 150


@pytest.mark.parametrize("name", HONEST)
def test_round_trip(name):
    for value in HONEST[name]:
        header, frames = sent(value)
        for arrived in (frames, [bytearray(frame) for frame in frames], shifted(frames)):
            families.check(header, arrived, grant=GRANT)
            same(families.deserialize(header, arrived, GRANT), value)


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", [name for name in HONEST if name.startswith(SPELT_TWICE)])
def test_both_spellings_agree(name):
    for value in HONEST[name]:
        _agree(value)


def _agree(value):
    verdicts = compared(value)
    if verdicts is not None:
        assert bool(verdicts[0].rule) == bool(verdicts[1].rule), verdicts


def used(value):
    for act in uses(value):
        try:
            act()
        except BROKEN:
            raise
        except Exception:  # an odd value may raise anything ordinary
            continue


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", HONEST)
def test_mutated(name):
    for number, value in enumerate(HONEST[name]):
        header, frames = sent(value)
        changes = list(attacks(header, frames))
        step = max(1, len(changes) * len(HONEST[name]) // CHANGES)
        for change in changes[number % step :: step]:
            survives(*change(), use=used)


@pytest.mark.parametrize("name", HOSTILE)
def test_refused(name):
    row = HOSTILE[name]
    assert refused(*row.make(*row.args)) == row.rule


#: What is listed to be refused with advice, and paths of another system.
NOTHING_TRAVELS = {"numpy:memmap", "pandas:GroupBy", "pathlib:WindowsPath", "polars:LazyFrame"}
PACKAGES = {"numpy", "pandas", "pyarrow", "scipy", "sklearn", "xarray", "polars", "dask", "joblib"}
PACKAGES |= sys.stdlib_module_names


def test_every_listed_type_has_an_example():
    headers = [sent(value)[0] for value in collect()[0].values()]
    for header in headers:
        headers += header.get("sub-headers", ())
    seen = {header.get("type") for header in headers} | NOTHING_TRAVELS
    listed = {name for name in registry.names() if name.partition(":")[0].split(".")[0] in PACKAGES}
    assert listed <= seen


@pytest.mark.parametrize("name", UNSENT)
def test_unsent(name):
    value, why = UNSENT[name]
    assert why in unsent([1, value])


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", HONEST)
def test_cost_of_what_is_accepted(name):
    for value in HONEST[name]:
        _is_bounded(*sent(value), 4 << 20)


@pytest.mark.unmeasured
@pytest.mark.parametrize("name", HOSTILE)
def test_cost_of_what_is_refused(name):
    row = HOSTILE[name]
    _is_bounded(*row.make(*row.args), 1 << 20)


def _is_bounded(header, frames, beside):
    """Assert that reading takes no memory beyond eight times what arrived, and what is *beside*."""
    arrived = len(repr(header)) + sum(len(frame) for frame in frames if frame is not None)
    tracemalloc.start()
    try:
        families.deserialize(header, frames, GRANT, limits=LIMITS)
    except SafeserError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= 8 * arrived + beside
