"""Places of what is found in a message: told to people, and no longer than those read."""

from __future__ import annotations

from safeser.dask.wire.fields import pickled, select


def test_places_of_short_paths_are_whole():
    assert list(pickled({"a": [b"x", (b"", b"y")]}, "args")) == [
        ("args.a[0]", b"x"),
        ("args.a[1][1]", b"y"),
    ]
    assert list(select({"m": ({"k": 1}, {"k": 2})}, "m[].k")) == [("m[0].k", 1), ("m[1].k", 2)]
    assert list(select({"m\n": {"k": 1}}, "*.k")) == [("m.k", 1)]


def test_places_far_down_take_no_memory_of_their_own():
    message = [b"x"] * 1000
    for _ in range(90):
        message = {"k" * 64: message}
    places = [where for where, _ in pickled(message, "args")]
    assert len(places) == 1000
    assert len({id(where) for where in places}) == 1
    assert len(places[0]) < 400
    [first, *_] = [where for where, _ in pickled([[message]], "k" * 250)]
    assert first.startswith("k" * 250 + "[0][0]")


def test_neither_do_those_of_elements():
    key = "k" * 60
    message = {key: {key: {key: {key: {key: [1] * 10}}}}}
    places = [where for where, _ in select(message, f"{key}.{key}.{key}.{key}.{key}[]")]
    assert len({id(where) for where in places}) == 1
