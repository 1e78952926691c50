"""``serialize`` and ``deserialize`` under a policy: it decides, and callers only narrow."""

import dataclasses
import types
from bisect import bisect_left

import numpy as np
import pandas as pd
import pytest

import safeser
from safeser import Context, Policy, deserialize, serialize
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SerializationError
from safeser.families.registered.own import OwnFamilies, OwnFamily
from safeser.gate.values import UNKNOWN, Limits

TEXT = """
safeser: 1
name: library
revision: 1
families: [shout]
principals: {alice: {}, bob: {}, carol: {}, dan: {}, eve: {}}
contexts:
  - name: typed
    sender: alice
    recipient: bob
    kinds: [admin, data]
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    dask: {types: ["tests.serialization.test_policy:Foreign"]}
  - name: pickles
    sender: carol
    recipient: bob
    kinds: [data]
    serializers: [msgpack, dask, pickle, shout]
    deserializers: [dask, msgpack, pickle, shout]
    pickle: {profile: [data, numpy]}
    operations: {grant: [basic]}
  - name: no-typed
    sender: dan
    recipient: bob
    serializers: [msgpack, pickle]
    deserializers: [msgpack, pickle]
    pickle: {profile: [data, numpy, pandas]}
  - name: code
    sender: bob
    recipient: [alice, carol]
    submission: code
    serializers: [dask, msgpack, pickle, cloudpickle]
    deserializers: [dask, msgpack, pickle, cloudpickle]
  - name: strangers
    sender: unknown
    recipient: bob
    kinds: [data]
    deserializers: [dask, msgpack]
limits: {max_bytes: 1MiB, max_array: 1MiB}
"""

POLICY = Policy.parse(TEXT)
TYPED = Context("alice", "bob")
PICKLES = Context("carol", "bob")
CODE = Context("bob", "alice")
EVERY = ["dask", "msgpack", "pickle", "cloudpickle", "error"]

PICKLED = serialize({"a": np.arange(3)}, ["pickle"])
RUNS = serialize(lambda: 5, ["cloudpickle"])


def read(payload, context, asked=None):
    return deserialize(*payload, asked, context=context, policy=POLICY)


def test_typed_values_pass_where_they_are_granted():
    for context in (TYPED, PICKLES, Context("stranger", "bob"), Context(UNKNOWN, "bob")):
        back = read(serialize({"x": np.arange(3)}), context)
        assert list(back["x"]) == [0, 1, 2]
    header, frames = serialize(np.arange(3), context=TYPED, policy=POLICY)
    assert list(read((header, frames), TYPED)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("payload", "context", "asked", "rule"),
    [
        # None is dask and msgpack, whatever the policy grants.
        (PICKLED, PICKLES, None, "caller.deserializers"),
        (RUNS, CODE, None, "caller.deserializers"),
        # A caller's list adds nothing.
        (PICKLED, TYPED, EVERY, "context.family"), (RUNS, PICKLES, EVERY, "context.family"),
        (PICKLED, TYPED, ["pickle"], "caller.deserializers"),
        # Nor does a claim: what needs code counts as code.
        (({**RUNS[0], "serializer": "pickle"}, RUNS[1]), PICKLES, EVERY, "context.family"),
        # Whoever the policy does not list is unknown, and gets no pickle.
        (PICKLED, Context("mallory", "bob"), EVERY, "floor.unknown"),
        (RUNS, Context("carol", "mallory"), EVERY, "context.none"),
        (PICKLED, Context(UNKNOWN, "bob"), EVERY, "floor.unknown"),
        # Default deny.
        (serialize(1), Context("eve", "bob"), EVERY, "context.none"),
        (serialize(1), Context("alice", "eve"), EVERY, "context.none"),
        (serialize(1), Context("carol", "bob", "control"), None, "context.none"),
        (serialize(1), Context("carol", "bob", "data", "run"), None, "operation.not-granted"),
        (
            serialize(1),
            Context("carol", "bob", "data", "no-such-op"),
            None,
            "operation.not-granted",
        ),
        # Admin is msgpack.
        (serialize(np.arange(3)), Context("alice", "bob", "admin"), EVERY, "floor.admin"),
        (PICKLED, CODE, ["dask"], "caller.deserializers"),
    ],
)  # fmt: skip
def test_denied(payload, context, asked, rule):
    with pytest.raises(PolicyDenied) as caught:
        read(payload, context, asked)
    assert caught.value.rule == rule


def test_pickles_within_their_profiles():
    assert list(read(PICKLED, PICKLES, EVERY)["a"]) == [0, 1, 2]
    forged = serialize(Foreign("x"), ["pickle"])
    with pytest.raises(PolicyDenied):
        read(forged, PICKLES, EVERY)
    # Code is read where a context grants it and a caller asks for it.
    assert read(RUNS, CODE, ["dask", "msgpack", "cloudpickle"])() == 5


def test_sealing():
    header, _ = serialize({1j}, ["dask", "msgpack"], context=TYPED, policy=POLICY)
    assert header["serializer"] != "error"
    # The caller's order, and no more than the policy's families.
    header, _ = serialize(np.arange(3), ["pickle", "dask"], context=PICKLES, policy=POLICY)
    assert header["serializer"] == "pickle"
    header, _ = serialize(np.arange(3), ["pickle", "dask"], context=TYPED, policy=POLICY)
    assert header["serializer"] == "dask"
    with pytest.raises(SerializationError) as caught:
        serialize({"f": Foreign}, EVERY, "raise", TYPED, policy=POLICY)
    for word in ("alice -> bob", "['f']", "a context that grants family cloudpickle"):
        assert word in str(caught.value)
    assert serialize({"f": Foreign}, EVERY, context=TYPED, policy=POLICY)[0]["failed"]
    # What the caller did not ask for, another grant does not bring.
    with pytest.raises(SerializationError, match="pickle, if the receiver names it among the"):
        serialize(Foreign("x"), ["dask", "msgpack"], "raise", PICKLES, policy=POLICY)
    for context, asked, rule in (
        (TYPED, ["pickle"], "caller.serializers"),
        (TYPED, ["cloudpickle"], "caller.serializers"),
        (Context("alice", "eve"), None, "context.none"),
        (Context("carol", "bob", "data", "run"), None, "operation.not-granted"),
        (Context("bob", "mallory"), ["pickle"], "context.none"),
    ):
        with pytest.raises(PolicyDenied) as caught:
            serialize(5, asked, context=context, policy=POLICY)
        assert caught.value.rule == rule
    with pytest.raises(SerializationError, match="by pickle in context carol"):
        serialize(lambda: 1, ["pickle"], "raise", PICKLES, policy=POLICY)
    # What the other side would refuse is refused here.
    with pytest.raises(PolicyDenied, match="Foreign"):
        serialize(Foreign("x"), ["pickle"], "raise", PICKLES, policy=POLICY)


def test_what_was_serialized_elsewhere_is_decided_too():
    for payload in (PICKLED, RUNS, ({**RUNS[0], "serializer": "pickle"}, RUNS[1])):
        with pytest.raises((PolicyDenied, SerializationError)):
            serialize(safeser.Serialized(*payload), EVERY, "raise", TYPED, policy=POLICY)
    with pytest.raises(PolicyDenied) as caught:
        serialize(
            [safeser.Serialized({**RUNS[0], "serializer": "pickle"}, RUNS[1])],
            EVERY, "raise", PICKLES, policy=POLICY,
        )  # fmt: skip
    assert caught.value.rule == "context.family"


def test_a_policy_decides_contexts_only():
    for context in (None, {"sender": "alice", "recipient": "bob"}, ("alice", "bob")):
        with pytest.raises(ConfigError) as caught:
            read(serialize(1), context)
        assert caught.value.rule == "families.context"
        with pytest.raises(ConfigError):
            serialize(1, context=context, policy=POLICY)
    with pytest.raises(ConfigError, match="limits"):
        deserialize(*serialize(1), context=TYPED, policy=POLICY, limits=safeser.Limits())


def test_its_limits_hold():
    payload = serialize(bytes(2 << 20))
    with pytest.raises(PayloadError):
        read(payload, TYPED)
    with pytest.raises(PayloadError):
        read(serialize(bytes(2 << 20), compression="zlib"), TYPED)
    assert read(serialize(bytes(1 << 19), compression="zlib"), TYPED) == bytes(1 << 19)


def test_bytes_are_decided_as_well():
    data = safeser.serialize_bytes(np.arange(3), context=TYPED, policy=POLICY)
    assert list(safeser.deserialize_bytes(data, context=TYPED, policy=POLICY)) == [0, 1, 2]
    with pytest.raises(PolicyDenied):
        safeser.deserialize_bytes(data, context=Context("eve", "bob"), policy=POLICY)


# --- registered functions ----------------------------------------------------------------------


class Foreign:
    def __init__(self, text):
        self.text = text


@pytest.fixture
def shout(monkeypatch):
    known = OwnFamilies(list)
    for module in ("registered.own", "tree", "sending", "receiving", "building"):
        monkeypatch.setattr(f"safeser.families.{module}.own_families", known)
    monkeypatch.setattr("safeser.serialization.own_families", known)
    seen = []

    def loads(header, frames, context):
        seen.append(context)
        return bytes(frames[0]).decode()

    known.register(OwnFamily("shout", lambda x: ({}, [x.upper().encode()]), loads))
    return seen


def test_own_families_where_the_policy_lists_them(shout):
    payload = serialize("hey", ["shout"], context=PICKLES, policy=POLICY)
    assert read(payload, PICKLES, ["shout"]) == "HEY"
    (words,) = shout
    assert (words["sender_principal"], words["recipient_principal"]) == ("carol", "bob")
    assert (words["kind"], words["transport"], words["sender"]) == ("data", "library", None)
    for context, asked, rule in (
        (PICKLES, None, "caller.deserializers"),
        (PICKLES, ["dask", "msgpack", "pickle"], "caller.deserializers"),
        (TYPED, ["shout", "dask"], "context.family"),
        (CODE, ["shout", "cloudpickle", "msgpack"], "context.family"),
        (Context("mallory", "bob"), ["shout", "dask"], "floor.unknown"),
    ):
        with pytest.raises(PolicyDenied) as caught:
            read(payload, context, asked)
        assert caught.value.rule == rule
    assert len(shout) == 1


# --- limits ---------------------------------------------------------------------------------------

COUNTED = {
    "list": [n + 0.5 for n in range(3000)],
    "dict": {n: n for n in range(500)},
    "nested": [[{"a": [n]}, (n,)] for n in range(100)],
    "mixed": [[n, 2j, "a", np.arange(n)] for n in range(50)],
    "records": [types.SimpleNamespace(a=[n] * 16, b=n) for n in range(50)],
    "column": [n + 1j for n in range(500)],
    "frame": pd.DataFrame({"a": ["x", 1] * 50, "b": range(100)}),
}


def accepts(call, most):
    try:
        return bool(call(dataclasses.replace(POLICY, limits=Limits(max_memory=most))))
    except PayloadError:
        return False


@pytest.mark.parametrize(
    ("context", "asked"),
    [
        (TYPED, ["dask", "msgpack"]),
        (Context("dan", "bob"), ["msgpack", "pickle"]),
        (Context("dan", "bob"), ["pickle"]),
    ],
)
@pytest.mark.parametrize("name", COUNTED)
def test_what_may_be_written_may_be_read_and_nothing_else(name, context, asked):
    value = COUNTED[name]
    sent = serialize(value, asked, "raise", context=context, policy=POLICY)

    def reads(policy):
        return [deserialize(*sent, asked, context=context, policy=policy)]

    def writes(policy):
        return serialize(value, asked, "raise", context=context, policy=policy)

    limit = bisect_left(range(1 << 22), True, key=lambda most: accepts(reads, most))
    for most in (limit - 1, limit, limit + 1):
        fits = most >= limit
        assert (accepts(reads, most), accepts(writes, most)) == (fits, fits)
        if asked != ["pickle"]:  # a policy lists msgpack as well
            flies = accepts(lambda policy: safeser.preflight(value, context, policy=policy), most)
            assert flies == fits
