"""Payloads of typed values: honest ones, forged ones, and every single change of one."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import pytest

from safeser import families
from safeser.errors import SafeserError
from safeser.families import plain
from safeser.families.registry import registry
from safeser.gate.values import Grant, Limits
from tests.samples.uses import BROKEN

GRANT = Grant("test", ("dask", "msgpack"))
FAMILIES = ("dask", "msgpack")
LIMITS = Limits(max_array=1 << 24, max_memory=100_000 << 7)


def sent(x, families_=FAMILIES):
    """Return the payload of *x* after its way through msgpack and a socket."""
    header, frames = families.serialize(x, families_)
    return plain.decode(plain.encode(header)), [bytes(frame) for frame in frames]


def through(x, *, frozen=True, grant=GRANT):
    """Return what arrives of *x*, in memory that may be written to unless it is *frozen*."""
    header, frames = sent(x, grant.families)
    frames = frames if frozen else [bytearray(frame) for frame in frames]
    families.check(header, frames, grant=grant)
    return families.deserialize(header, frames, grant)


def shifted(frames):
    """Return *frames* at addresses at which no number should begin."""
    return [memoryview(bytearray(b"x" + bytes(frame)))[1:] for frame in frames]


def rule_of(call, *args, error=SafeserError, **options):
    """Return the rule of the error that *call* raises."""
    with pytest.raises(error) as caught:
        call(*args, **options)
    assert len(str(caught.value)) < 1000
    return caught.value.rule


def refused(header, frames, *, grant=GRANT, limits=LIMITS):
    """Return the rule by which a payload is refused, before or while it is built."""

    def receive():
        families.check(header, frames, limits=limits)
        families.deserialize(header, frames, grant, limits=limits)

    return rule_of(receive)


def unsent(x, **options):
    """Return the sender's refusal of *x*."""
    with pytest.raises(SafeserError) as caught:
        families.serialize(x, FAMILIES, **options)
    assert caught.value.rule == "families.cannot-serialize"
    return str(caught.value)


class Hostile(NamedTuple):
    """A payload that no honest sender writes, made when it is needed.

    :ivar rule: by which it is refused.
    """

    rule: str
    name: str
    make: Callable[..., Any]
    args: tuple[Any, ...] = ()


def hostile(make, by_rule):
    """Return the rows of what *make* makes of each of the arguments that are listed by their rules.

    :param by_rule: arguments under names, or without any.
    """
    rows = []
    for rule, listed in by_rule.items():
        pairs = listed.items() if isinstance(listed, dict) else enumerate(listed)
        for name, args in pairs:
            args = args if isinstance(args, tuple) else (args,)
            rows.append(Hostile(rule, f"{make.__name__}: {name}", make, args))
    return rows


def ruled(make, rows):
    """Return the rows of what *make* makes of *rows*, each of which ends with its rule."""
    name = make.__name__
    return [Hostile(rule, f"{name} {n}", make, tuple(args)) for n, (*args, rule) in enumerate(rows)]


# -- forging ---------------------------------------------------------------------------------------


def typed(name, *children, frames=(), **meta):
    """Return a payload of type *name* that says *meta* and holds *children*, which are payloads."""
    header = {"serializer": "dask", "type": name, "sub-header": meta}
    return held(header, children, frames)


def payload(header, frames=()):
    return header, list(frames)


def collection(kind, *children, frames=()):
    return held({"serializer": "collection", "type": kind}, children or None, frames)


def held(header, children, frames=()):
    """Return *header* and *frames* with those of its children behind them."""
    frames = list(frames)
    if children is None or children:
        header |= {"sub-headers": [], "frame-lengths": []}
    for inner, more in children or ():
        header["sub-headers"].append(inner)
        header["frame-lengths"].append(len(more))
        frames += more
    return header, frames


def encoded(value):
    """Return the payload of a plain value that no sender need find fit to send."""
    return {"serializer": "msgpack"}, [plain.encode(value)]


def replaced(value, position, part, families_=FAMILIES):
    """Return the payload of *value* with *part* for its child at *position*."""
    header, frames = sent(value)
    start = len(frames) - sum(header["frame-lengths"]) + sum(header["frame-lengths"][:position])
    inner, own = sent(part, families_)
    header["sub-headers"][position] = inner
    frames[start : start + header["frame-lengths"][position]] = own
    header["frame-lengths"][position] = len(own)
    return header, frames


def lying(value, *path, to):
    """Return the payload of *value* whose header says something else at *path*."""
    header, frames = sent(value)
    return put(header, ("sub-header", *path), to), frames


def swapped(value, position, frame):
    """Return the payload of *value* with another frame at *position*."""
    header, frames = sent(value)
    frames[position] = frame
    return header, frames


def sent_as(name, value):
    """Return the payload of *value* as type *name* from a sender that checks nothing of it.

    What pickle writes of *value* becomes the tree, whatever its class is: see
    ``tests.pickles.forging`` for objects that pickle as anything.
    """
    kind = registry.named(name)
    with (
        mock.patch("safeser.pickles.writing._build", return_value=value),
        mock.patch("safeser.pickles.writing._check"),
    ):
        parts = kind.encode(value, Limits())
    children = [sent(child) for _, child in parts.children]
    return typed(name, *children, frames=map(bytes, parts.frames), **parts.meta)


# -- every single change ---------------------------------------------------------------------------

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
    """Yield what makes each single change of *header* and *frames* that is tried."""
    for path in spots(header):
        for value in HOSTILE:
            yield lambda path=path, value=value: (put(header, path, value), frames)
        if path:
            yield lambda path=path: (drop(header, path), frames)
    for key in ("type-serialized", "is-collection", "strides", "pickle", "x"):
        yield lambda key=key: ({**header, key: b""}, frames)
        if "sub-header" in header:
            inner = {**header["sub-header"], key: True}
            yield lambda inner=inner: ({**header, "sub-header": inner}, frames)
    for changed in (frames[:-1], [*frames, b""], frames[::-1]):
        yield lambda changed=changed: (header, changed)
    for position, frame in enumerate(frames):
        for wrong in (frame[:-1], frame + b"\x00", b"", b"\xff" * len(frame), None, "text"):
            changed = [*frames[:position], wrong, *frames[position + 1 :]]
            yield lambda changed=changed: (header, changed)


def survives(header, frames, use=repr):
    """Assert that the payload gives one SafeserError or an object that can be used."""
    try:
        families.claimed(header, limits=LIMITS)
        families.derive(header, frames, limits=LIMITS)
        families.check(header, frames, limits=LIMITS)
        built = families.deserialize(header, frames, GRANT, limits=LIMITS)
    except SafeserError as error:
        refused = error
    else:
        return _used(built, use)
    assert refused.rule.partition(".")[0] in ("families", "context", "value"), refused
    assert len(str(refused)) < 700
    return False


def _used(built, use):
    try:
        use(built)
    except BROKEN:
        raise
    except Exception:  # an odd value may raise anything ordinary
        pass
    return True
