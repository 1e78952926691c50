"""Futures, actors and persisted collections as data: keys and names, nothing that runs."""

from __future__ import annotations

from typing import Any

import pytest
from distributed import Actor, Future

from safeser import families
from safeser.dask.clients import dask_collections, references
from safeser.errors import PayloadError, SafeserError
from safeser.families import plain
from safeser.gate.values import Grant
from tests.dask.clients.test_dask_collections import COLLECTIONS
from tests.refusal import refusal

dask_collections.register()
references.register()
references.register()  # once more does no harm
FAMILIES = ("dask", "msgpack")
GRANT = Grant("test", FAMILIES)


def through(x: Any) -> Any:
    header, frames = families.serialize(x, FAMILIES)
    header = plain.decode(plain.encode(header))
    return families.deserialize(header, [bytes(frame) for frame in frames], GRANT)


class Base:
    limit = 3

    def inherited(self) -> None: ...


class Counter(Base):
    n = 0
    _hidden = 1
    grün = 2

    def increment(self) -> None: ...

    @classmethod
    def made(cls) -> None: ...

    @staticmethod
    def plainly() -> None: ...

    @property
    def half(self) -> int:
        return 1


ADDRESS = "safeser://127.0.0.1:1"


def test_an_actor_is_an_address_a_key_and_the_names_that_its_class_has():
    made = through(Actor(Counter, ADDRESS, "counter-1"))
    assert type(made) is Actor
    assert (made._address, made.key) == (ADDRESS, "counter-1")
    assert repr(made) == "<Actor: Counter, key=counter-1>"
    assert made._cls is not Counter
    public = {name for name in dir(Counter) if not name.startswith("__")}
    assert {name for name in vars(made._cls) if not name.startswith("__")} == public
    for name in ("increment", "inherited", "made", "plainly"):
        with pytest.raises(PayloadError, match=f"{name} is a method on the worker"):
            getattr(made._cls, name)()
    for name in ("n", "_hidden", "half", "limit", "grün"):
        assert getattr(made._cls, name) is None
    again = through(made)
    assert vars(again._cls).keys() == vars(made._cls).keys()


HONEST: dict[str, Any] = {
    "class": "m:C",
    "address": ADDRESS,
    "methods": ["go"],
    "attributes": [],
}


@pytest.mark.parametrize(
    "wrong",
    [
        {"class": 5},
        {"class": "m:\x1b[2J"},
        {"class": "m" * 301},
        {"address": "tcp://127.0.0.1:1"},
        {"address": "safeser://\n"},
        {"methods": "go"},
        {"methods": ["__init__"]},
        {"methods": ["a b"]},
        {"methods": [b"go"]},
        {"attributes": ["__dict__"]},
        {"attributes": {"a": 1}},
        {"attributes": [f"a{n}" for n in range(1000)]},
        {"more": 1},
    ],
    ids=str,
)
def test_what_names_no_actor(wrong):
    header, frames = families.serialize(Actor(Counter, ADDRESS, "k"), FAMILIES)
    header["sub-header"] = {**HONEST, **wrong}
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT)
    assert caught.value.rule in ("families.header", "families.too-large")


@pytest.mark.parametrize("thing", [Future("k"), Actor(Counter, ADDRESS, "k")])
@pytest.mark.parametrize("key", [None, {"a": 1}, [1], 1.5])
def test_what_is_no_key(thing, key):
    header, _ = families.serialize(thing, FAMILIES)
    inner, frames = families.serialize(key, FAMILIES)
    header |= {"sub-headers": [inner], "frame-lengths": [len(frames)]}
    with refusal(PayloadError, "families.child-type"):
        families.deserialize(header, frames, GRANT)


def test_what_is_no_actor_of_this_cluster_is_not_sent():
    huge = type("Huge", (), {f"a{n}": n for n in range(1001)})
    for cls, address in ((Counter, "tcp://127.0.0.1:1"), (huge, ADDRESS)):
        with pytest.raises(PayloadError, match="too many names"):
            families.serialize(Actor(cls, address, "k"), FAMILIES)


# -- collections ---------------------------------------------------------------------------------


def persisted(collection: Any) -> Any:
    """Return what a client's persist() makes of it: a future for each key."""
    graph = collection.__dask_graph__()
    keys = [*_flat(collection.__dask_keys__())]
    rebuild, arguments = collection.__dask_postpersist__()
    assert set(keys) <= set(graph)
    return rebuild({key: Future(key) for key in keys}, *arguments)


def _flat(keys: Any) -> Any:
    for key in keys:
        yield from _flat(key) if isinstance(key, list) else [key]


@pytest.mark.parametrize("collection", COLLECTIONS, ids=lambda x: type(x).__name__)
def test_what_was_persisted_arrives_over_the_same_results(collection):
    sent = persisted(collection)
    made = through([sent])[0]
    assert type(made) is type(sent)
    graph = dask_collections.results_of(made)
    assert {future.key for future in graph.values() if type(future) is Future} == {
        future.key for future in dask_collections.results_of(sent).values()
    }
    assert all(type(future) is Future for future in graph.values())
    one, two = dask_collections.describe(sent), dask_collections.describe(made)
    assert (one.kind, one.name, one.parts) == (two.kind, two.name, two.parts)
    assert type(one.meta) is type(two.meta)
    assert getattr(one.meta, "dtype", None) == getattr(two.meta, "dtype", None)
    assert list(getattr(one.meta, "columns", [])) == list(getattr(two.meta, "columns", []))


def test_a_persisted_collection_holds_a_description_alone():
    header, _ = families.serialize(persisted(COLLECTIONS[-1]), FAMILIES)
    for child in ("x", {"kind": "bag"}, Future("k")):
        inner, frames = families.serialize(child, FAMILIES)
        header |= {"sub-headers": [inner], "frame-lengths": [len(frames)]}
        with refusal(SafeserError, "families.child-type"):
            families.deserialize(header, frames, GRANT)
