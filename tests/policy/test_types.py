"""What family ``dask`` may read beside what is registered: ``dask: {types: ...}``, ``classes``."""

from __future__ import annotations

from dataclasses import replace

import pytest

from safeser.errors import ConfigError
from safeser.gate.values import ANY_AUTHOR, Context, Grant, Kind
from safeser.policy import Policy
from safeser.policy.questions.difference import compare
from safeser.policy.questions.difference_text import lines

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


# --- classes --------------------------------------------------------------------------------------

BODY = "contexts:\n- name: x\n  sender: {}\n  recipient: {}\n  deserializers: {}\n  classes: {}\n"


def with_classes(word: str, families: str = "[dask, msgpack]", sender: str = "[a, c]") -> Policy:
    head = HEAD.replace("b: {}", "b: {}, c: {}")
    return Policy.parse(head + BODY.format(sender, "b", families, word), source="p.yaml")


def test_own_classes_hold_for_what_listed_senders_wrote() -> None:
    grant = with_classes("own").grant(Context("a", "b"))
    assert grant.own == {"a", "c"}
    assert grant.written_by("c", sender="a").own == grant.own
    for author in ("b", "unknown", ANY_AUTHOR):
        assert not grant.written_by(author, sender="a").own
    head = HEAD.replace("b: {}", "b: {}, c: {}") + BODY.format("c", "b", "[msgpack]", "registered")
    rest = BODY.replace("contexts:\n- name: x", "- name: second").format(
        "[a, c]", "b", "[dask, msgpack]", "own"
    )
    assert Policy.parse(head + rest, source="p.yaml").grant(Context("a", "b")).own == {"a"}
    relays = replace(grant, authors=frozenset({"b"}))
    assert not relays.written_by("b", sender="a").own
    assert not grant.narrowed(["msgpack"]).own
    assert not with_classes("own").grant(Context("a", "b", Kind.ADMIN)).own
    assert not with_classes("registered").grant(Context("a", "b")).own


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"word": "own", "families": "[msgpack]"}, "config.no-effect"),
        ({"word": "own", "sender": "[a, unknown]"}, "floor.unknown"),
        ({"word": "all"}, "config.kind-of-classes"), ({"word": "[own]"}, "config.value"),
    ],
)  # fmt: skip
def test_what_classes_cannot_say(options: dict[str, str], rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_classes(**options)
    assert caught.value.rule == rule


def test_classes_are_shown_explained_and_compared() -> None:
    old, new = with_classes("registered"), with_classes("own")
    said = "own: instances of the recipient's own classes are rebuilt"
    assert ("classes", said, False) in list(new.contexts[0].rows())
    assert [said] == [*new.contexts[0].explanations()] != [*old.contexts[0].explanations()]
    (line,) = lines(compare(old, new))
    assert line.effect == "loosens"
    assert line.text.endswith("b: now may have instances of the recipient's own classes rebuilt")
