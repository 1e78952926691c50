"""safeser.preflight says what serialize and the recipient's policy would say."""

from __future__ import annotations

import functools
import operator
import os
import threading
import types
from types import SimpleNamespace

import numpy as np
import pytest

import safeser
from safeser.errors import ConfigError, PolicyDenied, SerializationError
from safeser.gate.values import Context
from safeser.policy import Policy
from safeser.sendable.preflight import cannot_send

LOCK = threading.Lock()


class Calls:
    def __reduce__(self):
        return os.getenv, ("HOME",)


class Data:
    """Has no typed value, and a pickle that is no code."""

    def __reduce__(self):
        return complex, (1.0, 2.0)


@pytest.fixture(scope="module")
def demo():
    return Policy.load("demo")


def towards_scheduler(sender, kind="task"):
    operation = "update-graph" if kind == "task" else None
    return Context(sender, "scheduler", kind, operation, transport="safeser")


@pytest.mark.parametrize(("value", "family", "names"), [
    (1, "msgpack", ()), ({"a": np.arange(3), "b": {1, 2}}, "dask", ()),
    (Calls(), "cloudpickle", ("os:getenv",)), (os.path.join, "cloudpickle", ("posixpath:join",)),
])  # fmt: skip
def test_family_size_and_names(value, family, names):
    found = safeser.preflight(value)
    assert (found.ok, bool(found), found.family, found.imports) == (True, True, family, names)
    assert found.calls == (names if type(value) is Calls else ())
    assert found.size > 0
    assert found.require() is found


def test_each_culprit_is_a_line_and_an_error():
    found = safeser.preflight({"a": LOCK, "b": [threading.RLock()]})
    assert not found
    assert (found.family, found.size) == (None, 0)
    assert [each.path for each in found.culprits] == [("['a']",), ("['b']", "[0]")]
    assert len(str(found).splitlines()) == 3
    with pytest.raises(SerializationError) as caught:
        found.require()
    assert caught.value.rule == "sendable.unwritable"
    assert "builtins:dict cannot be sent: ['a'] -> _thread:lock: a lock" in caught.value.message
    assert "Beside it cannot be sent: ['b'] -> [0] -> _thread:RLock; " in caught.value.fix
    assert str(cannot_send("x", ())) == "x cannot be sent\n  rule: sendable.unwritable"


def test_a_policy_that_lists_no_pickle_blames_what_is_no_typed_value(demo):
    found = safeser.preflight([1, Calls()], towards_scheduler("bob", "data"), policy=demo)
    assert not found
    assert found.culprits[0].path == ("[1]",)
    assert "by dask, msgpack" in found.culprits[0].reason


def test_a_policy_decides_by_sender(demo):
    f = lambda: 1  # noqa: E731
    assert safeser.preflight(f, towards_scheduler("alice"), policy=demo)
    for value in (f, np.arange(3)):
        found = safeser.preflight(value, towards_scheduler("bob"), policy=demo)
        assert not found
        assert found.refusal.rule == "submission.none"
        assert "is refused in bob -> scheduler task update-graph" in str(found)
        with pytest.raises(PolicyDenied):
            found.require()


@pytest.mark.parametrize("kind", ["task", "data"])
def test_who_is_not_listed_is_refused(demo, kind):
    found = safeser.preflight(1, towards_scheduler("mallory", kind), policy=demo)
    assert found.refusal is not None
    assert not found


def pickling(deserializers):
    """Return a policy whose sender pickles first."""
    return Policy.parse(f"""
safeser: 1
name: pickles
revision: 1
principals: {{a: {{}}, b: {{}}}}
contexts:
- {{name: c, sender: a, recipient: b, serializers: [pickle, dask, msgpack],
   deserializers: [{deserializers}]}}
""")


def test_what_the_recipient_refuses_is_refused():
    found = safeser.preflight(Data(), Context("a", "b"), policy=pickling("dask, msgpack"))
    assert (found.family, found.refusal.rule, bool(found)) == ("pickle", "context.family", False)


def submitting(submission):
    return Policy.parse(f"""
safeser: 1
name: submits
revision: 1
principals: {{a: {{}}, scheduler: {{}}}}
contexts:
- name: c
  sender: a
  recipient: scheduler
  submission: {submission}
  serializers: [dask, msgpack]
  deserializers: [dask, msgpack]
  operations: {{grant: [basic]}}
""")


class Registered:
    def __init__(self, held):
        self.held = held

    def method(self):
        return 1

    @classmethod
    def of_class(cls):
        return 1


safeser.register_serialization(Registered, lambda x: ({}, [b""]), lambda h, f: Registered(None))


@pytest.mark.parametrize("value", [ValueError(LOCK), Registered(LOCK)])
def test_what_alone_a_family_but_no_graph_carries_cannot_be_submitted(value):
    """An argument of a task is pickled, whatever family its value has by itself."""
    assert safeser.preflight(value).family in ("error", "dask")
    for submission in ("sealed", "code"):
        policy = submitting(submission)
        if submission == "code":
            policy = Policy.load("demo")
        context = towards_scheduler("alice" if submission == "code" else "a")
        found = safeser.preflight(value, context, policy=policy)
        assert not found
        assert found.culprits[0].name == "_thread:lock"
        assert safeser.preflight(lambda: 1, context, policy=policy)
        assert safeser.preflight(np.arange(3), context, policy=policy).family in (
            "pickle",
            "cloudpickle",
        )


@pytest.mark.parametrize(("value", "name"), [
    (Registered(1).method, f"{__name__}:Registered.method"),
    (Registered.of_class, f"{__name__}:Registered.of_class"),
    (types.MethodType(functools.partial(print, 1), 1), "builtins:method"),
    (types.MethodType(operator.itemgetter(0), 1), "builtins:method"),
])  # fmt: skip
def test_what_can_be_sent_is_named(value, name):
    found = safeser.preflight(value)
    assert found
    assert found.name == name


def test_families_are_asked_in_the_order_in_which_a_link_asks_them():
    policy, context = pickling("pickle, dask, msgpack"), Context("a", "b")
    assert safeser.preflight(np.arange(3), context, policy=policy).family == "dask"
    found = safeser.preflight(Calls(), context, policy=policy)
    assert found.refusal is not None
    assert str(found.refusal) in str(found)


def test_a_context_needs_a_policy():
    with pytest.raises(ConfigError) as caught:
        safeser.preflight(1, Context("a", "b"))
    assert caught.value.rule == "sendable.policy"


def test_a_client_brings_both(demo):
    client = SimpleNamespace(
        safeser=SimpleNamespace(policy=demo), submission_context=lambda: towards_scheduler("bob")
    )
    assert safeser.preflight(1, client=client).refusal.rule == "submission.none"
    assert safeser.preflight(1, towards_scheduler("alice"), client)
