"""Random ways to make and build allowed classes: what is accepted is what CPython makes of it."""

from __future__ import annotations

import io
import pickle

from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import SafeserError
from safeser.pickles import Profile, loads
from tests.draws import draws
from tests.pickles.own_classes import Frozen, InitArgs, Keyword, Plain, Slotted, SlottedAndFree
from tests.samples import opcodes as op

SLOTS = ("a", "b", "x", "tags")
OWN = (Plain, Keyword, InitArgs, Slotted, SlottedAndFree, Frozen)
NAMED = [f"tests.pickles.own_classes:{own.__name__}" for own in OWN]
SPEC = {"role": "class", "kwargs": ["colour"], "hashable": False}
PROFILE = Profile.named("data").allowing(dict.fromkeys(NAMED, SPEC))

NAMES = st.sampled_from(NAMED)
TEXTS = st.sampled_from(
    ["a", "b", "c", "kind", "given", "method", "colour", "__class__", "a b", "__dict__"]
).map(op.value)
LEAVES = st.sampled_from([b"N", b"K\x01", b"\x88", b"]", b"}", b")"]) | TEXTS
ARGUMENTS = st.lists(LEAVES, max_size=3)
DICTS = st.lists(st.tuples(TEXTS, LEAVES), max_size=3).map(
    lambda pairs: op.pairs(*(part for pair in pairs for part in pair)) if pairs else b"}"
)
STATES = (
    st.none()
    | LEAVES
    | DICTS
    | st.tuples(DICTS | st.just(b"N"), DICTS | st.just(b"N")).map(op.value)
    | st.lists(LEAVES, max_size=3).map(op.value)
)


@st.composite
def made(draw):
    name, arguments = draw(NAMES), draw(ARGUMENTS)
    match draw(st.sampled_from(["call", "new", "ex", "inst", "obj", "bare"])):
        case "call":
            body = op.call(name, *arguments)
        case "new":
            body = op.new(name, *arguments)
        case "ex":
            body = op.name(name) + op.value(tuple(arguments)) + draw(DICTS) + b"\x92"
        case "inst":
            line = name.replace(":", "\n").encode()
            body = b"(" + b"".join(arguments) + b"i" + line + b"\n"
        case "obj":
            body = b"(" + op.name(name) + b"".join(arguments) + b"o"
        case _:
            body = op.call(
                "copyreg:_reconstructor", op.name(name), op.name("builtins:object"), b"N"
            )
    state = draw(STATES)
    return body if state is None else op.build(body, state)


def _content(value):
    """Return what an instance holds, for comparison."""
    if type(value) not in OWN:
        return value
    slots = {name: getattr(value, name) for name in SLOTS if hasattr(value, name)}
    return type(value), getattr(value, "__dict__", None), slots


@draws(300)
@given(made())
def test_what_is_accepted_is_what_cpython_makes(body):
    assert type(loads(op.pickled(op.new(NAMED[0])), profile=PROFILE)) is Plain, "the control"
    data = op.pickled(body)
    before = {own: dict(vars(own)) for own in OWN}
    try:
        got = loads(data, profile=PROFILE)
    except SafeserError:
        return
    finally:
        assert {own: dict(vars(own)) for own in OWN} == before
    for expected in (pickle.loads(data), pickle._Unpickler(io.BytesIO(data)).load()):
        assert _content(got) == _content(expected)
