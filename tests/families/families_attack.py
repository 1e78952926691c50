"""Mutations of headers and frames, and the one contract that they must meet."""

import copy
from unittest import mock

from hypothesis import strategies as st

from safeser import families
from safeser.errors import SafeserError
from safeser.families import plain
from safeser.families.registry import registry
from safeser.values import Grant, Limits

GRANT = Grant("test", ("dask", "msgpack"))
FAMILIES = ("dask", "msgpack")
LIMITS = Limits(max_array=1 << 24, max_refs=100_000)


def through(x, *, frozen=True, families_=FAMILIES, grant=GRANT):
    """Serialize, pass the header through msgpack and frames through a copy, check, deserialize."""
    header, frames = families.serialize(x, families_)
    header = plain.decode(plain.encode(header))
    frames = [bytes(frame) if frozen else bytearray(frame) for frame in frames]
    families.check(header, frames)
    return families.deserialize(header, frames, grant)


def sent_as(name, value):
    """Return the payload of *value* as type *name* from a sender that checks nothing of it.

    What pickle writes of *value* becomes the tree, whatever its class is: see
    ``tests.pickles.forging`` for objects that pickle as anything.
    """
    typed = registry.named(name)
    with (
        mock.patch("safeser.pickles.writing._build", return_value=value),
        mock.patch("safeser.pickles.writing._check"),
    ):
        parts = typed.encode(value, Limits())
    header = {"serializer": "dask", "type": name, "sub-header": parts.meta}
    frames = list(parts.frames)
    if parts.children:
        header |= {"sub-headers": [], "frame-lengths": []}
    for _, child in parts.children:
        inner, more = families.serialize(child, FAMILIES)
        header["sub-headers"].append(inner)
        header["frame-lengths"].append(len(more))
        frames += more
    return header, [bytes(frame) for frame in frames]


#: What a hostile header says in place of an honest value.
HOSTILE = [
    None, True, False, 0, 1, -1, 3, 65, 1 << 31, 1 << 62, 1 << 63, -(1 << 63), 1 << 80, 1.5,
    float("nan"), "", "O", "|O", "O8", "objects", "V", "U", "S", "M", "g", "x" * 300, "a\x00b",
    "os:system", "builtins:eval", "numpy:ndarray", "pandas:DataFrame", b"", b"\xc0", b"\x93\x01",
    [], [0], [-1], [1 << 40, 0], [1 << 62, 1 << 62], [1] * 65, ["O", 8, "|"], ["V", 8, "|"],
    ["U", 4, "<"], "<M8[Y]", {}, {"a": 1}, {"base": ["O", 8, "|"], "shape": [1]},
    {"fields": [["a", ["O", 8, "|"], 0]], "size": 8, "align": False},
    {"fields": [["a", "<l8", 0], ["b", "<l8", 4]], "size": 16, "align": False},
]  # fmt: skip


def spots(header, path=()):
    """Yield the path of every value inside *header*."""
    yield path
    if isinstance(header, dict):
        for key in header:
            yield from spots(header[key], (*path, key))
    elif isinstance(header, list):
        for position, item in enumerate(header):
            yield from spots(item, (*path, position))


def put(header, path, value):
    if not path:
        return value
    header = copy.deepcopy(header)
    inner = header
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return header


def drop(header, path):
    header = copy.deepcopy(header)
    inner = header
    for step in path[:-1]:
        inner = inner[step]
    del inner[path[-1]]
    return header


def attacks(header, frames):
    """Yield every single change of *header* and *frames* that is tried."""
    for path in spots(header):
        for value in HOSTILE:
            yield put(header, path, value), frames
        if path:
            yield drop(header, path), frames
    for key in ("type-serialized", "is-collection", "strides", "pickle", "x"):
        yield {**header, key: b""}, frames
        if "sub-header" in header:
            yield {**header, "sub-header": {**header["sub-header"], key: True}}, frames
    yield header, frames[:-1]
    yield header, [*frames, b""]
    yield header, frames[::-1]
    for position, frame in enumerate(frames):
        for wrong in (frame[:-1], frame + b"\x00", b"", b"\xff" * len(frame), None, "text"):
            yield header, [*frames[:position], wrong, *frames[position + 1 :]]


def survives(header, frames, use):
    """Assert that the payload gives one SafeserError or an object that can be used."""
    try:
        families.claimed(header, limits=LIMITS)
        families.derive(header, frames, limits=LIMITS)
        families.check(header, frames, limits=LIMITS)
        built = families.deserialize(header, frames, GRANT, limits=LIMITS)
    except SafeserError as error:
        refused = error
    else:
        use(built)
        return True
    assert refused.rule.partition(".")[0] in ("families", "context", "value"), refused
    assert len(str(refused)) < 700
    return False


def mutate_all(x, use, *, every=1):
    """Try each single mutation of how *x* is sent; return how many were refused and accepted."""
    header, frames = families.serialize(x, FAMILIES)
    header = plain.decode(plain.encode(header))
    frames = [bytes(frame) for frame in frames]
    assert survives(header, frames, use)
    results = [
        survives(*attack, use)
        for number, attack in enumerate(attacks(header, frames))
        if number % every == 0
    ]
    return results.count(False), results.count(True)


hostile = st.sampled_from(HOSTILE)
