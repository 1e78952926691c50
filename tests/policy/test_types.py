"""``dask: {types: ...}``: what libraries registered with distributed, by exact name, to be read."""

from __future__ import annotations

import pytest

from safeser.errors import ConfigError
from safeser.policy import Policy
from safeser.values import Context, Grant, Kind

HEAD = "safeser: 1\nname: test\nrevision: 3\nprincipals: {a: {}, b: {}}\n"


def policy(dask: str, families: str = "[dask, msgpack]", sender: str = "a") -> Policy:
    return Policy.parse(
        f"{HEAD}contexts:\n- name: x\n  sender: {sender}\n  recipient: b\n"
        f"  deserializers: {families}\n  dask: {dask}\n",
        source="p.yaml",
    )


THING = '{types: ["my.lib:Thing", "my.lib:Outer.Inner"]}'


def test_what_is_listed_is_granted_to_whoever_reads() -> None:
    loaded = policy(THING)
    assert loaded.grant(Context("a", "b")).types == {"my.lib:Thing", "my.lib:Outer.Inner"}
    assert loaded.contexts[0].types == {"my.lib:Thing", "my.lib:Outer.Inner"}


def test_it_reaches_neither_admin_messages_nor_lists_without_dask() -> None:
    loaded = policy(THING)
    assert loaded.grant(Context("a", "b", Kind.ADMIN)).types == frozenset()
    # These serializers do not hold dask; who seals by it must know what the other side reads.
    assert loaded.grant(Context("a", "b"), sealing=True).types == frozenset()


def test_a_narrowed_grant_keeps_it_with_the_family_alone() -> None:
    grant = policy(THING).grant(Context("a", "b"))
    assert grant.narrowed(["dask"]).types == grant.types
    assert grant.narrowed(["msgpack"]).types == frozenset()


@pytest.mark.parametrize(
    ("dask", "rule"),
    [
        ('{types: ["my.lib.Thing"]}', "config.types"),
        ('{types: ["my.lib:*"]}', "config.types"),
        ('{types: ["my.lib:"]}', "config.types"),
        ('{types: [":Thing"]}', "config.types"),
        ('{types: ["my lib:Thing"]}', "config.types"),
        ('{types: ["my.lib:Thing:More"]}', "config.types"),
        ('{types: ["my..lib:Thing"]}', "config.types"),
        ('{types: ["my.lib:Thing", "my.lib:Thing"]}', "config.twice"),
        ("{types: []}", "config.empty"),
        ("{types: {}}", "config.value"),
        ("{types: my}", "config.value"),
        ("{types: [7]}", "config.value"),
        ("{}", "config.missing-key"),
        ('{type: ["my.lib:Thing"]}', "config.unknown-key"),
        ("[types]", "config.value"),
    ],
)
def test_what_means_nothing_is_refused_at_its_place(dask: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policy(dask)
    assert caught.value.rule == rule
    assert caught.value.where.startswith("p.yaml, line ")


def test_it_needs_the_family_among_the_deserializers() -> None:
    with pytest.raises(ConfigError) as caught:
        policy(THING, "[msgpack]")
    assert caught.value.rule == "config.no-effect"


def test_unknown_is_never_granted_any() -> None:
    with pytest.raises(ConfigError) as caught:
        policy(THING, sender="[a, unknown]")
    assert caught.value.rule == "floor.unknown"


def test_a_grant_holds_exact_names() -> None:
    with pytest.raises(ConfigError) as caught:
        Grant("x", ("dask",), types=frozenset({"my.lib.Thing"}))
    assert caught.value.rule == "config.types"
