"""Nothing of a payload is decoded, checked or imported before every payload was decided."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser import families, pickles
from safeser.channel import Received
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.families import receiving
from safeser.gate.values import Kind
from tests.refusal import refusal

PICKLE = {"serializer": "pickle", "writeable": []}
ROOT = Path(__file__).parents[2]


class Arrival:
    """A message that *sender* sealed for *recipient*, verified there; tests say what is in it."""

    def __init__(self, doors, policy, sender, recipient):
        near, self.link = doors.links(sender, recipient, policy)
        self.message = self.link.verify(near.session.seal(b"", []))
        self.audit = self.link.audit
        self.context = self.link.inbound(Kind.DATA)

    def payload(self, header, frames, where="x", **options):
        return self.link.payload(self.message, self.context, where, header, frames, **options)

    def admit(self, *payloads, **options):
        return self.link.admit(self.message, self.context, payloads, **options)


@pytest.fixture
def arrival(doors, policy):
    return lambda sender, recipient: Arrival(doors, policy, sender, recipient)


MSGPACK = families.serialize([1, {"a": "b"}], ["msgpack"])
ERROR = families.serialize(ValueError("x"), ["error"])
TYPED = families.serialize([np.arange(3), 1j], ["dask"])
PLAIN_PICKLE = (PICKLE, [pickle.dumps({"a": 1})])
CODE = (PICKLE, [pickle.dumps(os.system)])


@given(st.lists(st.sampled_from([MSGPACK, ERROR, TYPED, PLAIN_PICKLE, CODE]), max_size=5))
def test_one_denied_payload_keeps_all_from_being_read(doors, policy, sent):
    a = Arrival(doors, policy, "bea", "ann")
    with pytest.MonkeyPatch.context() as patch:
        seen = []
        patch.setattr(receiving, "_check", lambda *args: seen.append("check"))
        patch.setattr(pickles.Parsed, "judged", lambda *args, **options: seen.append("judge"))
        payloads = [a.payload(*each) for each in sent]
        if CODE in sent:
            with pytest.raises(PolicyDenied):
                a.admit(*payloads)
            assert seen == []
        else:
            a.admit(*payloads)
            pickled = sent.count(PLAIN_PICKLE)
            assert (seen.count("judge"), seen.count("check")) == (pickled, len(sent) - pickled)


def test_all_are_checked_before_one_is_recorded_and_recorded_before_one_is_loaded(
    arrival, monkeypatch
):
    a = arrival("bea", "ann")
    for name in ("check_reading", "build"):
        real = getattr(families, name)

        def noted(*args, _real=real, _name=name, **options):
            a.audit.note(_name)
            return _real(*args, **options)

        monkeypatch.setattr(families, name, noted)
    admitted = a.admit(a.payload(*MSGPACK), a.payload(*TYPED))
    a.link.load(admitted)
    assert a.audit.order == ["check_reading"] * 2 + ["admit"] * 2 + ["build"] * 2


@pytest.mark.parametrize(
    ("header", "frames"),
    [
        ({"serializer": "msgpack"}, [b"\xc1"]),
        ({"serializer": "error"}, [b"\x01"]),
        ({"serializer": "dask", "type": "os:system", "sub-header": {}}, []),
        ({"serializer": "dask", "type": "builtins:complex", "sub-header": {}}, []),
        ({}, []),
        ({"serializer": "msgpack"}, []),
        (PICKLE, []),
    ],
)
def test_what_has_no_shape_or_fails_its_check_is_refused_with_its_place(arrival, header, frames):
    a = arrival("ann", "bea")
    with pytest.raises(PayloadError) as caught:
        a.admit(a.payload(*MSGPACK, where="one"), a.payload(header, frames, where="two"))
    assert caught.value.where == "two" or a.audit.events[0]["where"] == "two"
    for event in a.audit.events:
        assert (event["event"], event["rule"]) == ("refuse", caught.value.rule)


# --- bytes that a handler unpickles -----------------------------------------------------------

BYTES = {"serializer": "dask", "type": "builtins:bytes", "sub-header": {}}
SHARD = pickle.dumps([(0, [1, 2])])


def wrap(data, family):
    if family == "msgpack":
        return families.serialize(data, ["msgpack"])
    return families.serialize(data, ["dask"])


@pytest.mark.parametrize("family", ["msgpack", "dask"])
def test_a_pickle_inside_a_payload_is_decided_and_recorded_with_it(arrival, family):
    a = arrival("bea", "ann")
    outer = a.payload(*wrap(SHARD, family), where="data", wraps=True)
    other = a.payload(*MSGPACK, where="other")
    first, second = a.admit(outer, other).permitted
    inner = first.inside
    assert inner.payload.family == "pickle"
    assert second.inside is None
    assert [event["family"] for event in a.audit.events] == [family, "msgpack", "pickle"]
    assert a.link.load_one(inner) == [(0, [1, 2])]


@pytest.mark.parametrize("family", ["msgpack", "dask"])
@pytest.mark.parametrize("author", [None, "cy"])
def test_code_inside_a_payload_keeps_all_from_being_checked(
    arrival, monkeypatch, marker, family, author
):
    a = arrival("bea", "ann")
    evil = marker.pickle if author is None else SHARD  # of others not even plain pickles pass
    sent = [
        a.payload(*MSGPACK, where="one"),
        a.payload(*wrap(evil, family), where="two", wraps=True, author=author),
    ]
    monkeypatch.setattr(receiving, "_check", None)
    with pytest.raises(PolicyDenied) as caught:
        a.admit(*sent)
    assert caught.value.where == "two"
    assert a.audit.order == ["refuse"]


def test_what_a_caller_is_not_willing_to_open_is_not_opened_inside_either(arrival):
    a = arrival("bea", "ann")
    outer = a.payload(*wrap(SHARD, "msgpack"), wraps=True)
    with refusal(PolicyDenied, "caller.deserializers"):
        a.admit(outer, requested=["dask", "msgpack"])


@pytest.mark.parametrize("value", [1, "text", [b"x"], {"a": SHARD}, bytearray(SHARD), 1j, None])
def test_only_bytes_are_taken_for_a_pickle(arrival, value):
    a = arrival("bea", "ann")
    payload = a.payload(*families.serialize(value, ["dask", "msgpack"]), wraps=True)
    admitted = a.admit(payload)
    assert admitted.permitted[0].inside is None
    assert a.link.load(admitted) == [value]


@pytest.mark.parametrize(
    ("header", "frames"),
    [
        (MSGPACK[0], [b"\xc4\x05abc"]),
        (MSGPACK[0], [b"\xc4\x03abcd"]),
        (MSGPACK[0], [b"\xc6\xff\xff\xff\xff"]),
        (MSGPACK[0], [b"\xc4\x03abc"]),
        (BYTES, [b"abc"]),
        (BYTES, []),
        (BYTES, [b"a", b"b"]),
    ],
)
def test_bytes_that_are_malformed_or_no_pickle_are_refused(arrival, header, frames):
    a = arrival("bea", "ann")
    with pytest.raises(PayloadError) as caught:
        a.admit(a.payload(header, frames, where="data", wraps=True))
    assert caught.value.recorded
    assert [(each["event"], each["where"]) for each in a.audit.events] == [("refuse", "data")]


@given(st.binary(max_size=30), st.sampled_from(["msgpack", "error", "pickle"]))
def test_any_bytes_that_wrap_anything_are_admitted_or_refused(doors, policy, data, family):
    a = Arrival(doors, policy, "bea", "ann")
    header = PICKLE if family == "pickle" else {"serializer": family}
    try:
        a.admit(a.payload(header, [data], wraps=True))
    except SafeserError:
        assert "admit" not in a.audit.order


# --- each made only by the step before it ------------------------------------------------------


def test_nobody_else_makes_a_received(arrival):
    a = arrival("ann", "bea")
    made = a.payload(*MSGPACK)
    for proof in (None, object(), True):
        with pytest.raises(TypeError):
            Received("x", "msgpack", {}, (), verified=made.verified, _proof=proof)
    with pytest.raises(TypeError):
        Received("x", "msgpack", {}, ())
    with pytest.raises(AttributeError):
        made.family = "dask"


def test_a_payload_of_another_message_or_session_is_not_admitted(arrival):
    one, two = arrival("ann", "bea"), arrival("ann", "bea")
    for payloads in ([two.payload(*MSGPACK)], [one.payload(*MSGPACK), two.payload(*MSGPACK)]):
        with pytest.raises(TypeError):
            one.admit(*payloads)
    assert one.audit.events == []
    with refusal(PolicyDenied, "context.session"):
        one.link.admit(two.message, one.context)


WRONG = """
from safeser.channel import Link, Received
from safeser.gate.format import Prelude
from safeser.gate.session import Verified
from safeser.gate.values import Context, Payload

def unverified(link: Link, sealed: Prelude, context: Context) -> None:
    link.payload(sealed, context, "x", {}, [])  # wrong
    link.admit(sealed, context)  # wrong

def of_no_message(link: Link, verified: Verified, context: Context, payload: Payload) -> None:
    link.admit(verified, context, [payload])  # wrong

def undecided(link: Link, received: Received) -> None:
    link.load(received)  # wrong
    link.load_one(received)  # wrong

def right(link: Link, verified: Verified, context: Context) -> object:
    received = link.payload(verified, context, "x", {}, [])
    return link.load(link.admit(verified, context, [received]))
"""


@pytest.mark.slow
def test_the_type_checker_refuses_the_wrong_order(tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text(WRONG)
    # By the project's settings, so that what `make check` found out a minute ago is known.
    command = [sys.executable, "-m", "mypy", str(program)]
    ended = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False
    )
    found = {line.split(":")[1] for line in ended.stdout.splitlines() if ": error:" in line}
    lines = enumerate(WRONG.splitlines(), 1)
    assert found == {str(number) for number, line in lines if "# wrong" in line}, ended.stdout


# --- what a header names is not imported ------------------------------------------------------

FRESH = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("doors", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["doors"] = module
spec.loader.exec_module(module)
from safeser import pickles
from safeser.errors import SafeserError
from safeser.families import plain
from safeser.gate.values import Kind

read = []
real = plain.decode_counted
plain.decode_counted = lambda *args, **options: read.append(1) or real(*args, **options)
library, name = sys.argv[3:]
header = {"serializer": "dask", "type": f"{library}:{name}", "sub-header": {}}

def arrive(sender, recipient, *payloads, broken=()):
    near, far = module.Doors().links(sender, recipient, sys.argv[2])
    far.audit.broken = set(broken)
    verified = far.verify(near.session.seal(b"", []))
    context = far.inbound(Kind.DATA)
    before = set(sys.modules)
    try:
        found = [far.payload(verified, context, "x", *each) for each in payloads]
        admitted = far.admit(verified, context, found)
    except SafeserError as error:
        assert set(sys.modules) == before, set(sys.modules) - before
        assert library not in sys.modules
        return error.rule
    assert library not in sys.modules
    return far.load(admitted)

one = ({"serializer": "msgpack"}, [b"\\x01"])
arrive("ann", "bea", one)
read.clear()
assert arrive("bea", "cy", (header, [])) == "context.family"
assert arrive("bea", "cy", one, (header, [])) == "context.family"
assert read == []
assert arrive("bea", "ann", (header, []), (one[0], [b"\\xc1"])) == "families.msgpack"
assert arrive("bea", "ann", (header, []), broken=["admit"]) == "audit.write"
wrong = {**header, "type": f"{library}:read_pickle"}
assert arrive("bea", "ann", (header, []), (wrong, [])) == "families.type"
called = b"\\x80\\x04c" + library.encode() + b"\\nDataFrame\\n)\\x81."
pickled = ({"serializer": "pickle", "writeable": []}, [called])
pickles.Profile.of(pickles.DATA_PROFILES)  # read once, the same for every pickle
for broken in ([], ["admit"]):
    assert isinstance(arrive("bea", "ann", (header, []), pickled, broken=broken), str)
[missing] = arrive("bea", "ann", (header, []))
assert missing is getattr(sys.modules[library], name)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("library", "name"), [("pandas", "NA"), ("numpy.ma", "masked")])
def test_a_header_that_names_a_library_imports_it_only_when_it_is_loaded(policy, library, name):
    doors = str(ROOT / "tests" / "conftest.py")
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", FRESH, doors, policy, library, name]
    subprocess.run(command, check=True, env=environment, timeout=60)
