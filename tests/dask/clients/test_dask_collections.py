"""Dask's collections as data: what they are travels, their graphs do not."""

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from safeser import families
from safeser.dask.clients import dask_collections
from safeser.dask.clients.dask_collections import Described, describe
from safeser.errors import PayloadError, SafeserError
from safeser.families import plain
from safeser.gate.values import Grant, Limits
from tests.refusal import refusal

dask_collections.register()
FAMILIES = ("dask", "msgpack")
GRANT = Grant("test", FAMILIES)
FRAME = pd.DataFrame({"a": range(6), "b": list("uvwxyz")}, index=pd.date_range("2026", periods=6))


def through(x):
    header, frames = families.serialize(x, FAMILIES)
    header = plain.decode(plain.encode(header))
    frames = [bytes(frame) for frame in frames]
    families.check(header, frames)
    return families.deserialize(header, frames, GRANT)


COLLECTIONS = [
    da.arange(10, chunks=4).reshape(2, 5).astype("f4"),
    da.ones((), chunks=()),
    dd.from_pandas(FRAME, npartitions=3),
    dd.from_pandas(FRAME["b"], npartitions=2),
    dd.from_pandas(FRAME, npartitions=2).index,
    db.from_sequence(range(6), npartitions=3),
    dask.delayed(sum)([1, 2]),
    db.from_sequence(range(6), npartitions=3).sum(),
]


def plainly(x):
    return x.tolist() if isinstance(x, np.ndarray) else x


@pytest.mark.parametrize("collection", COLLECTIONS, ids=lambda x: type(x).__name__)
def test_a_collection_over_results_that_exist(collection):
    (kept,) = dask.persist(collection, scheduler="sync")
    sent = describe(kept)
    got = through(sent)
    assert (got.kind, got.name, got.parts) == (sent.kind, sent.name, sent.parts)
    assert set(got.keys()) == set(dask_collections.results_of(kept))
    assert got.count == len(list(got.keys()))
    keys = list(got.keys())
    results = dict(zip(keys, dask.get(dict(kept.__dask_graph__()), keys), strict=True))
    made = got.collection(results.__getitem__)
    one, two = (x.compute(scheduler="sync") for x in (made, collection))
    if hasattr(one, "equals"):
        assert one.equals(two)
    else:
        assert plainly(one) == plainly(two)
    if sent.kind == "array":
        assert (made.dtype, made.chunks) == (collection.dtype, collection.chunks)


@pytest.mark.parametrize(
    "graph",
    [*COLLECTIONS, COLLECTIONS[0].dask, COLLECTIONS[2].expr],
    ids=lambda x: type(x).__name__,
)
def test_graphs_are_refused_with_advice(graph):
    with refusal(PayloadError, "families.cannot-serialize", match=r"\.compute\(\)") as caught:
        families.serialize({"x": graph}, FAMILIES)
    assert caught.value.where == "['x']"


def test_other_collections_are_not_described():
    sparse = pytest.importorskip("scipy.sparse")
    strange = da.from_array(sparse.csr_matrix(np.eye(2)), asarray=False)
    for wrong in (5, strange, {}):
        with refusal(PayloadError, "families.dask"):
            describe(wrong)


EMPTY = np.zeros((0, 0))


@pytest.mark.parametrize(
    ("kind", "name", "meta", "parts"),
    [
        ("graph", "x", None, None),
        ("array", 5, EMPTY, ((1,), (1,))),
        ("array", "x" * 501, EMPTY, ((1,), (1,))),
        ("array", "\x1b[2Jx", EMPTY, ((1,), (1,))),
        ("bag", "\rx", None, 1),
        ("frame", "\u202ex", FRAME.iloc[:0], (1, 2)),
        ("array", "x", EMPTY, ((1,),)),
        ("array", "x", EMPTY, ((1,), 1)),
        ("array", "x", EMPTY, ((1,), (-1,))),
        ("array", "x", EMPTY, ((1,), (True,))),
        ("array", "x", EMPTY, [(1,), (1,)]),
        ("array", "x", np.zeros((1, 1)), ((1,), (1,))),
        ("array", "x", "meta", ((1,), (1,))),
        ("frame", "x", FRAME, (1, 2)),
        ("frame", "x", FRAME.iloc[:0], (1,)),
        ("frame", "x", FRAME.iloc[:0], [1, 2]),
        ("frame", "x", FRAME["a"].array[:0], (1, 2)),
        ("bag", "x", None, 0),
        ("bag", "x", None, True),
        ("bag", "x", 1, 3),
        ("delayed", "x", None, 1),
        ("delayed", "x", EMPTY, None),
    ],
)
def test_what_describes_nothing(kind, name, meta, parts):
    with refusal(PayloadError, "families.dask"):
        Described(kind, name, meta, parts)
    header, _ = families.serialize(Described("delayed", "x"), FAMILIES)
    children = [families.serialize(child, FAMILIES) for child in (meta, parts)]
    header["sub-header"] = {"kind": kind, "name": name}
    header["sub-headers"] = [inner for inner, _ in children]
    header["frame-lengths"] = [len(own) for _, own in children]
    with pytest.raises(SafeserError) as caught:
        families.deserialize(header, [f for _, own in children for f in own], GRANT)
    assert caught.value.rule.startswith("families.")


def test_more_keys_than_a_message_may_hold():
    header, frames = families.serialize(Described("bag", "x", None, 1 << 40), FAMILIES)
    with refusal(PayloadError, "families.too-large", match="more keys"):
        families.deserialize(header, frames, GRANT, limits=Limits())
