"""``pickle: {allow: ...}``: single globals, each with a role, at the place where they are wrong."""

from __future__ import annotations

import pytest

from safeser.allowed import Allowed
from safeser.errors import ConfigError
from safeser.gate.values import Context, Grant
from safeser.policy import Policy

HEAD = "safeser: 1\nname: test\nrevision: 3\nprincipals: {a: {}, b: {}}\n"


def policy(allow: str, families: str = "[msgpack, pickle]", more: str = "") -> Policy:
    return Policy.parse(
        f"{HEAD}{more}contexts:\n- name: x\n  sender: a\n  recipient: b\n"
        f"  deserializers: {families}\n  pickle:\n    allow:\n      {allow}\n",
        source="p.yaml",
    )


def grant(allow: str) -> Grant:
    return policy(allow).grant(Context("a", "b"))


def test_a_role_alone() -> None:
    found = grant('"my.lib:Point": class')
    assert found.allow == (Allowed("my.lib:Point", "class"),)
    assert found.profiles == ("data",)


def test_all_that_can_be_said() -> None:
    found = grant(
        '"my.lib:Point": {role: class, fields: [lat, lon], kwargs: [zone], grows: list,'
        " trust: [__hash__, __setstate__]}"
    )
    (allowed,) = found.allow
    assert allowed == Allowed(
        "my.lib:Point",
        "class",
        fields=("lat", "lon"),
        hashable=True,
        kwargs=("zone",),
        grows="list",
        setstate=True,
    )
    (made,) = grant('"my:make": {role: callable, returns: "my:Point"}').allow
    assert made.returns == "my:Point"


def test_it_does_not_reach_admin_messages() -> None:
    assert policy('"my:P": class').grant(Context("a", "b", "admin")).allow == ()


def test_one_name_in_two_roles() -> None:
    both = grant('"my:Point": [{role: class, fields: [x]}, reference]').allow
    assert both == (Allowed("my:Point", "class", ("x",)), Allowed("my:Point", "reference"))
    assert Allowed.each("my:Point", "class") == (Allowed("my:Point", "class"),)


@pytest.mark.parametrize(
    "allow",
    [
        '"my.lib.Point": class',
        '"my.lib:*": class',
        '"my lib:Point": class',
        '":Point": class',
        '"my:": class',
        '"my:Point": klass',
        '"my:Point": 7',
        '"my:Point": []',
        '"my:Point": [class, class]',
        '"my:Point": [[class], reference]',
        '"my:Point": {}',
        '"my:Point": {role: class, field: [x]}',
        '"my:Point": {role: class, fields: x}',
        '"my:Point": {role: class, fields: [__class__]}',
        '"my:Point": {role: class, fields: [1]}',
        '"my:Point": {role: class, fields: ["a b"]}',
        '"my:Point": {role: class, kwargs: [__init__]}',
        '"my:Point": {role: class, hashable: "yes"}',
        '"my:Point": {role: class, trust: [__init__]}',
        '"my:Point": {role: class, trust: __hash__}',
        '"my:Point": {role: class, trust: [[__hash__]]}',
        '"my:Point": {role: class, grows: set}',
        '"my:Point": {role: class, returns: "my:Other"}',
        '"my:point": {role: reference, fields: [x]}',
        '"my:point": {role: enum, trust: [__setstate__]}',
        '"my:point": callable',
        '"my:point": {role: callable, returns: Point}',
    ],
)
def test_what_means_nothing_is_refused_at_its_place(allow: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy(allow)
    assert caught.value.rule == "config.allow"
    assert caught.value.where.startswith("p.yaml, line ")


def test_it_needs_the_family() -> None:
    with pytest.raises(ConfigError) as caught:
        policy('"my:Point": class', "[dask, msgpack]")
    assert caught.value.rule == "config.no-effect"
