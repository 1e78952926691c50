"""Every row of ``tests.samples.pickles*``: hostile ones refused by their rule, honest ones read.

The one rule: a row says what a pickle holds, and not how it travels; protocols, buffers,
containers and the other spelling are given to each row here.
"""

from __future__ import annotations

import itertools
import pickle
import resource
import sys

import pytest

from safeser.errors import PolicyDenied, SafeserError
from safeser.gate.values import Limits
from safeser.pickles import DATA_PROFILES, Budget, Parsed, Profile, inspect, loads
from safeser.pickles.reading.machine import read
from safeser.pickles.trees.reading import read_tree
from safeser.pickles.trees.writing import write
from tests.equality import difference
from tests.pickles.forging import refused
from tests.samples import (
    pickles,
    pickles_arrow,
    pickles_honest,
    pickles_numpy,
    pickles_pandas,
    pickles_scipy,
    pickles_sklearn,
    pickles_stdlib,
)
from tests.samples.opcodes import pickled
from tests.samples.values import collect_all

# pandas speaks of what it will not do in a later version, and models of few iterations.
pytestmark = pytest.mark.filterwarnings("ignore")

ALL, LIMITS = Profile.named(*DATA_PROFILES), Limits()
FILES = (pickles, pickles_stdlib, pickles_numpy, pickles_pandas, pickles_arrow)
FILES += (pickles_scipy, pickles_sklearn)
#: Around a value: in a list, a dict and a tuple, twice in one, and thrown away.
CONTAINERS = (b"]%ba", b"}K\x00%bs", b"N%b\x86", b"]%ba2\x86", b"%b0N")


#: Rows of many parts, each of which is read as the few of others are.
LONG = {"fields that double", "ten thousand fields and one", "the same labels again and again"}
LONG |= {"the same holidays again and again", "late payload", "a hundred long patterns"}


def rows(table):
    for file in FILES:
        for rule, held in getattr(file, table, {}).items():
            for at, name in enumerate(held):
                made = held[name] if isinstance(held, dict) else name
                label = name if isinstance(held, dict) else at
                short = file.__name__.rpartition(".")[2]
                marks = [pytest.mark.unmeasured] * (label in LONG)
                yield pytest.param(rule, made, id=f"{short}-{rule}-{label}", marks=marks)


HOSTILE = [*rows("HOSTILE"), *rows("UNNAMED")]


def is_whole(made):
    return isinstance(made, bytes) and made[:1] == b"\x80"


def spelt(made):
    """Yield pickles of *made* by protocol: of opcodes, of a whole pickle, or of an object."""
    for protocol in (0, 2, 4, 5):
        if is_whole(made):
            yield 5, made
            return
        if isinstance(made, bytes):
            yield protocol, pickled(made, protocol)
        elif protocol:
            yield protocol, pickle.dumps(made, protocol)


def rule_of(call, *args, **options):
    """Return the rule of the error that *call* raises, or the empty string and what it returns."""
    try:
        return "", call(*args, **options)
    except SafeserError as error:
        return error.rule, error


@pytest.mark.parametrize(("rule", "made"), HOSTILE)
def test_refused_by_its_rule(trap, rule, made):
    modules = set(sys.modules)
    for protocol, data in spelt(made):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        found, _ = rule_of(loads, data, profile=ALL, buffers=[b"os"] * data.count(b"\x97"))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
        # Names with dots came with protocol 4.
        assert found == rule or (found == "pickle.name" and protocol < 4)
    assert set(sys.modules) == modules


@pytest.mark.slow
@pytest.mark.unmeasured
@pytest.mark.parametrize(("rule", "made"), HOSTILE)
def test_refused_in_any_container(trap, rule, made):
    if is_whole(made):
        return
    body = made if isinstance(made, bytes) else pickle.dumps(made, 3)[2:-1]
    # What is thrown away need not be finished.
    for container in CONTAINERS[: 4 if rule == "pickle.unfinished" else None]:
        refused(rule, loads, pickled(container % body), profile=ALL, buffers=[b"os"])


@pytest.mark.parametrize(("rule", "made"), HOSTILE)
def test_inspect_says_the_same_and_so_does_a_tree(trap, rule, made):
    *_, (_, data) = spelt(made)
    buffers = [b"os"] * data.count(b"\x97")
    denied = isinstance(refused(rule, loads, data, profile=ALL, buffers=buffers), PolicyDenied)
    found, seen = rule_of(inspect, data, profile=ALL)
    if found:
        assert found == rule
        return
    assert seen.permitted is not denied
    assert seen.text()
    assert seen.as_dict()
    program = read(data, buffers=len(buffers), limits=LIMITS)
    found, tree = rule_of(write, program)
    if found:
        assert found == "pickle.tree"  # what reduced objects do not need
        return
    again = read_tree(tree, buffers=program.buffers, limits=LIMITS, budget=Budget(LIMITS))

    def build():
        judged = Parsed(again, LIMITS).judged(ALL, buffers=len(buffers))
        return judged.build(buffers, Budget(LIMITS))

    refused(rule, build)


ACCEPTED = [
    pytest.param(made, table == "ACCEPTED", id=f"{file.__name__.rpartition('.')[2]}-{table}-{at}")
    for file in FILES
    for table in ("ACCEPTED", "OLDER")
    for at, made in enumerate(getattr(file, table, []))
]


@pytest.mark.parametrize(("made", "compared"), ACCEPTED)
def test_what_rows_differ_from_is_accepted(made, compared):
    *_, (_, data) = spelt(made)
    got = loads(data, profile=ALL)
    if compared:
        assert not difference(got, pickle.loads(data))


HONEST = [
    pytest.param(value, compare, id=f"{name}-{at}-{type(value).__name__}")
    for name, compare in pickles_honest.TABLES.items()
    for at, value in enumerate(getattr(pickles_honest, name))
]


@pytest.mark.usefixtures("without_tblib")
@pytest.mark.parametrize(("value", "compare"), HONEST)
def test_an_honest_value_is_read_as_cpython_reads_it(value, compare):
    for protocol in range(6):
        try:
            data = pickle.dumps(value, protocol)
        except TypeError:
            assert protocol < 2
            continue
        if protocol < 2 and hasattr(value, "_fields"):
            # Such a class could be made past its __new__.
            refused("pickle.global", loads, data, profile=ALL)
            continue
        expected, again = pickle.loads(data), pickle.loads(data)
        got = loads(data, profile=ALL)
        # Of memory that NumPy never sets, such as padding, not two are alike.
        assert not compare(got, expected) or compare(expected, again)
    assert not compare(*apart(value))


def apart(value):
    """Return what safeser and CPython read of *value*'s pickle whose buffers lie beside it."""
    held = []
    data = pickle.dumps(value, 5, buffer_callback=held.append)
    one, other = ([bytearray(buffer.raw()) for buffer in held] for _ in range(2))
    return loads(data, profile=ALL, buffers=one), pickle.loads(data, buffers=other)


#: The samples of typed values that have pickles too.
TYPED = ("arrays", "arrow", "estimators", "frames", "sparse", "stdlib")
BOTH = {name: held for name, held in collect_all().items() if name.startswith(TYPED)}


def told_apart(one, other):
    try:
        return difference(one, other)
    except TypeError:  # of functions that estimators hold
        return pickles_honest.other_text(one, other)


@pytest.mark.usefixtures("without_tblib")
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=[pytest.mark.slow] * (name == "arrow/Table")) for name in BOTH
])  # fmt: skip
def test_a_value_that_has_two_spellings_is_read_as_cpython_reads_it(name):
    for value, protocol in itertools.product(BOTH[name], range(2, 6)):
        try:
            data = pickle.dumps(value, protocol)
            expected, again = pickle.loads(data), pickle.loads(data)
        except Exception:  # what a library does not write, or not read again
            continue
        for got in (loads(data, profile=ALL), *(apart(value)[:1] if protocol == 5 else ())):
            # Of what is empty, or was asked something before, the memory differs.
            assert (
                not told_apart(got, expected)
                or told_apart(expected, again)
                or not pickles_honest.other_text(got, expected)
                or not told_apart(got, value)
            )
