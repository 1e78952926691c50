"""Arrow's arrays without elements, of every nested type over every other, in either spelling."""

import contextlib
import pickle

import pyarrow as pa
import pytest

from safeser.pickles import loads
from tests.samples.typed import through

PROFILE = ("data", "numpy", "pandas")
CODED = pa.dictionary(pa.int8(), pa.string())

LEAVES = {
    "int": pa.int8(), "text": pa.string(), "flag": pa.bool_(), "null": pa.null(),
    "view": pa.string_view(), "nothing": pa.binary(0), "no fields": pa.struct([]),
    "extension": pa.bool8(), "dictionary": CODED,
    "dictionary of numbers": pa.dictionary(pa.int32(), pa.float64(), ordered=True),
    "dictionary of lists": pa.dictionary(pa.int8(), pa.list_(pa.int8())),
    "dictionary of nulls": pa.dictionary(pa.int8(), pa.null()),
    "dictionary of dictionaries": pa.dictionary(pa.int8(), CODED),
    "dictionary in a list": pa.list_(CODED), "dictionary in a map": pa.map_(CODED, CODED),
    "runs": pa.run_end_encoded(pa.int32(), pa.string()),
    "runs of dictionaries": pa.run_end_encoded(pa.int16(), CODED),
}  # fmt: skip
OUTER = {
    "alone": lambda kind: kind, "list": pa.list_, "large list": pa.large_list,
    "list view": pa.list_view, "large list view": pa.large_list_view,
    "two": lambda kind: pa.list_(kind, 2), "none": lambda kind: pa.list_(kind, 0),
    "struct": lambda kind: pa.struct([("x", kind), ("y", pa.int8())]),
    "map": lambda kind: pa.map_(pa.string(), kind), "keys": lambda kind: pa.map_(kind, pa.int8()),
    "dense union": lambda kind: pa.dense_union([pa.field("a", kind), pa.field("b", pa.int8())]),
    "sparse union": lambda kind: pa.sparse_union([pa.field("a", kind)]),
    "runs": lambda kind: pa.run_end_encoded(pa.int64(), kind),
    "list of maps": lambda kind: pa.list_(pa.map_(pa.string(), kind)),
    "map of maps": lambda kind: pa.map_(pa.string(), pa.map_(pa.string(), kind)),
    "struct of maps": lambda kind: pa.struct([("m", pa.map_(pa.string(), kind))]),
    "maps by two": lambda kind: pa.list_(pa.map_(pa.string(), kind), 2),
}  # fmt: skip


def arrays(kind):
    """Yield what Arrow can make of *kind* that has no elements, or holds what has none."""
    for make in (
        lambda: pa.array([], kind),
        lambda: pa.nulls(0, kind),
        lambda: pa.nulls(3, kind),
        lambda: pa.nulls(3, kind)[1:1],
        lambda: pa.nulls(3, kind)[3:],
        lambda: pa.array([[], None, []], kind),
        lambda: pa.array([[], None, []], kind)[1:],
        lambda: pa.array([[], None, []], kind)[2:2],
        lambda: pa.array([[[]], [[], None]], kind),
        lambda: pa.chunked_array([], kind),
        lambda: pa.chunked_array([pa.nulls(0, kind), pa.nulls(2, kind), pa.nulls(0, kind)], kind),
        lambda: pa.schema([("a", kind), ("b", kind)]).empty_table(),
        lambda: pa.table({"a": pa.nulls(2, kind)}).slice(1, 1),
        lambda: pa.scalar(None, kind),
    ):
        with contextlib.suppress(pa.ArrowException, TypeError, ValueError):
            made = make()
            made.validate(full=True)
            yield made


def kinds(outer):
    """Return the types that Arrow has of *outer* over each other one, by the other's name."""
    found = {}
    for inner, leaf in LEAVES.items():
        with contextlib.suppress(pa.ArrowException, TypeError, ValueError):
            found[inner] = OUTER[outer](leaf)
    return found


@pytest.mark.unmeasured
@pytest.mark.parametrize("outer", OUTER)
def test_what_has_no_elements_arrives(outer):
    for inner, kind in kinds(outer).items():
        found = list(arrays(kind))
        assert found, inner
        for value in found:
            for back in (through(value), loads(pickle.dumps(value), profile=PROFILE)):
                assert type(back) is type(value), inner
                assert back.equals(value), inner
                back.validate(full=True)


def test_every_nested_type_is_seen():
    assert all(len(kinds(outer)) >= 15 for outer in OUTER)
