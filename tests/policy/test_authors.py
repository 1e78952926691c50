"""``authors``: whose payloads a sender may relay as if it had written them itself."""

from __future__ import annotations

import itertools

import pytest

from safeser.errors import ConfigError
from safeser.gate.values import ANY_AUTHOR, UNKNOWN, Context, Grant
from safeser.policy import Policy

HEAD = """safeser: 1
name: test
revision: 3
families: [own]
principals:
  hub: {}
  ann: {groups: [staff]}
  bea: {groups: [staff]}
  cy: {}
  me: {}
contexts:
- name: relayed
  sender: hub
  recipient: me
"""

PICKLES = """  serializers: [dask, msgpack, pickle, own]
  deserializers: [dask, msgpack, pickle, own]
  pickle: {profile: numpy, allow: {"my.lib:Point": class}}
  dask: {types: ["my.lib:Tiles"]}
"""

HOP = Context("hub", "me")


def policy(authors: str, rest: str = PICKLES) -> Policy:
    return Policy.parse(f"{HEAD}  authors: {authors}\n{rest}", source="p.yaml")


def refused(authors: str, rest: str = PICKLES) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        policy(authors, rest)
    return caught.value


@pytest.mark.parametrize("author", ["cy", "me", "any", "unknown", "nobody", "group:staff", ""])
def test_of_everybody_else_passes_what_cannot_reach_code(author: str) -> None:
    loaded = policy("[group:staff]")
    for family in ("pickle", "own"):
        assert loaded.decide(HOP, family, author=author).rule == "author.relayed"
        assert loaded.decide(HOP, family, author=author, sealing=True).rule == "author.relayed"
    for family in ("dask", "msgpack", "error"):
        assert loaded.decide(HOP, family, author=author).permitted


SENDERS = "sender: [hub, cy, group:staff]"
OPEN = HEAD.replace("sender: hub", SENDERS) + PICKLES.replace(
    "pickle, own", "pickle, cloudpickle, own"
)
BEFORE = "- {{name: first, sender: [cy, bea], recipient: me, {}deserializers: [msgpack]}}\n"
BEFORE += "- name: relayed"
NAMES = frozenset({"ann", "bea", "cy", "me", "any", "unknown", "nobody"})


@pytest.mark.parametrize(
    ("part", "instead", "passes"),
    [
        (SENDERS, SENDERS, {"ann", "bea", "cy"}),
        (SENDERS, "sender: hub", set()),
        (SENDERS, "sender: [hub, me]", {"me"}),
        # A relay gains nothing for one whose own messages an earlier context decides, some or all.
        ("- name: relayed", BEFORE.format(""), {"ann"}),
        ("- name: relayed", BEFORE.format("same_host: false, "), {"ann"}),
        ("- name: relayed", BEFORE.format("transport: safeser, "), {"ann"}),
        ("- name: relayed", BEFORE.format("until: '2020-01-01', "), {"ann"}),
        ("- name: relayed", BEFORE.format("kinds: [task], "), {"ann", "bea", "cy"}),
        ("recipient: me", "recipient: me\n  same_host: true", set()),
        ("recipient: me", "recipient: me\n  kinds: [admin, data]", {"ann", "bea", "cy"}),
    ],
)
def test_an_own_family_passes_from_whom_the_context_takes_it_itself(
    part: str, instead: str, passes: set[str]
) -> None:
    """It may run anything in its reader, so that a relay adds no sender to those that may."""
    loaded = Policy.parse(OPEN.replace(part, instead) + "  submission: code\n")
    hop = Context("hub", "me", transport="safeser", same_host=True)
    for family, sealing in itertools.product(("own", "pickle", "cloudpickle"), (False, True)):
        asked = {name: loaded.decide(hop, family, author=name, sealing=sealing) for name in NAMES}
        permitted = {name for name, each in asked.items() if each.permitted}
        assert permitted == (passes if family == "own" else set())
    cut = {name: loaded.grant(hop).written_by(name, sender="hub") for name in NAMES}
    assert {name for name, each in cut.items() if "own" in each.families} == passes
    assert {name for name, each in cut.items() if each.types} == passes
    assert not any(
        {"pickle", "cloudpickle"} & {*each.families} or each.allow for each in cut.values()
    )


def test_a_grant_is_cut_to_whom_it_lists() -> None:
    grant = policy("ann").grant(HOP)
    assert grant.authors == {"ann"}
    for author in ("ann", "hub"):
        assert grant.written_by(author, sender="hub") is grant
    for author in ("cy", ANY_AUTHOR, UNKNOWN):
        cut = grant.written_by(author, sender="hub")
        assert cut.families == ("dask", "msgpack", "error")
        assert not cut.types
        assert not cut.allow
        assert not cut.profiles


def test_a_grant_never_vouches_for_nobody() -> None:
    # Such a policy does not load; a grant that somebody makes by hand keeps the floor as well.
    grant = Grant("x", ("pickle",), authors=frozenset({ANY_AUTHOR, UNKNOWN}))
    for author in (ANY_AUTHOR, UNKNOWN):
        assert not grant.vouches_for(author, sender="hub")
        assert grant.written_by(author, sender="hub").families == ()


@pytest.mark.parametrize(
    ("authors", "rest", "rule"),
    [
        ("[an]", PICKLES, "config.undefined"),
        ("[ann, bee]", PICKLES, "config.undefined"),
        ("group:stuff", PICKLES, "config.undefined"),
        ("[any]", PICKLES, "floor.author"),
        ("[ann, unknown]", PICKLES, "floor.author"),
        ("[ann, ann]", PICKLES, "config.twice"),
        ("[]", PICKLES, "config.empty"),
        ("{ann: cy}", PICKLES, "config.value"),
        ("7", PICKLES, "config.value"),
        ("[hub]", PICKLES, "config.no-effect"),
        ("[ann]", "", "config.no-effect"),
        ("[ann]", "  deserializers: [dask, msgpack]\n", "config.no-effect"),
    ],
)
def test_what_means_nothing_is_refused_at_its_place(
    authors: str,
    rest: str,
    rule: str,
) -> None:
    error = refused(authors, rest)
    assert error.rule == rule


def test_only_dask_relays() -> None:
    error = refused("ann", "  transport: library\n" + PICKLES)
    assert error.rule == "config.no-effect"
    assert "only what Dask relays" in error.message
    assert policy("ann", "  transport: [safeser, library]\n" + PICKLES)
    # Nor is it advised.
    loaded = Policy.parse(HEAD + "  transport: library\n" + PICKLES)
    denied = loaded.decide(Context("hub", "me", transport="library"), "pickle", author="ann")
    assert denied.rule == "author.relayed"
    assert "authors are named by what Dask relays" in denied.fix


def test_types_alone_are_reason_enough_to_list_authors() -> None:
    rest = '  deserializers: [dask, msgpack]\n  dask: {types: ["my.lib:Tiles"]}\n'
    grant = policy("ann", rest).grant(HOP)
    assert grant.written_by("ann", sender="hub").types == {"my.lib:Tiles"}
    assert not grant.written_by("cy", sender="hub").types


def test_a_policy_that_names_unknown_can_list_no_author_to_any_effect() -> None:
    text = HEAD.replace("sender: hub", "sender: [hub, unknown]") + "  authors: [ann]\n"
    with pytest.raises(ConfigError) as caught:
        Policy.parse(text + "  deserializers: [dask, msgpack, pickle]\n")
    assert caught.value.rule == "floor.unknown"
    with pytest.raises(ConfigError) as caught:
        Policy.parse(text + "  deserializers: [dask, msgpack]\n")
    assert caught.value.rule == "config.no-effect"
