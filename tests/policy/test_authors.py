"""``authors``: whose payloads a sender may relay as if it had written them itself."""

from __future__ import annotations

import pytest

from safeser.errors import ConfigError
from safeser.policy import Policy, explain
from safeser.values import ANY_AUTHOR, UNKNOWN, Context, Grant, Kind

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


@pytest.mark.parametrize("sealing", [False, True])
@pytest.mark.parametrize("family", ["dask", "msgpack", "error", "pickle", "own"])
def test_of_whom_is_listed_passes_what_the_context_permits(family: str, sealing: bool) -> None:
    loaded = policy("[group:staff]")
    for author in ("ann", "bea", "hub", None):
        assert loaded.decide(HOP, family, sealing=sealing, author=author).permitted
    assert loaded.decide(HOP, "cloudpickle", author="ann").rule == "context.family"


@pytest.mark.parametrize("author", ["cy", "me", "any", "unknown", "nobody", "group:staff", ""])
def test_of_everybody_else_passes_what_cannot_reach_code(author: str) -> None:
    loaded = policy("[group:staff]")
    for family in ("pickle", "own"):
        assert loaded.decide(HOP, family, author=author).rule == "author.relayed"
        assert loaded.decide(HOP, family, author=author, sealing=True).rule == "author.relayed"
    for family in ("dask", "msgpack", "error"):
        assert loaded.decide(HOP, family, author=author).permitted


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


def test_absent_means_nobody() -> None:
    loaded = Policy.parse(HEAD + PICKLES)
    assert loaded.grant(HOP).authors == frozenset()
    assert loaded.decide(HOP, "pickle", author="ann").rule == "author.relayed"


def test_it_does_not_reach_admin_messages() -> None:
    admin = Context("hub", "me", Kind.ADMIN)
    assert policy("ann").decide(admin, "pickle", author="ann").rule == "floor.admin"


def test_the_advice_is_to_list_the_author_and_says_of_whom_the_risk_is() -> None:
    loaded = policy("ann")
    denied = loaded.decide(HOP, "pickle", author="cy")
    assert "add cy to 'authors'" in denied.fix
    assert "pickles of cy (as hub relay it) are then rebuilt in me" in denied.fix
    assert policy("[ann, cy]").decide(HOP, "pickle", author="cy").permitted
    for author in ("any", "nobody"):
        denied = loaded.decide(HOP, "pickle", author=author)
        assert "No policy can permit it: its author is not known" in denied.fix


def test_the_advice_lists_family_and_author_where_both_lack() -> None:
    loaded = Policy.parse(HEAD)
    denied = loaded.decide(HOP, "pickle", author="ann")
    assert "add pickle to 'deserializers', add ann to 'authors'" in denied.fix
    assert "add" not in loaded.decide(HOP, "pickle", author="any").fix


def test_code_of_an_author_is_said_to_be_code() -> None:
    code = "  submission: code\n  deserializers: [dask, msgpack, pickle, cloudpickle]\n"
    denied = policy("ann", code).decide(HOP, "cloudpickle", author="cy")
    assert "cy (as hub relay it) can then run any code in me" in denied.fix


def test_an_explanation_names_the_authors() -> None:
    answer = explain(policy("group:staff"), HOP, "pickle", author="bea")
    assert answer.decision.permitted
    assert any("ann, bea" in step for step in answer.steps)


@pytest.mark.parametrize(
    ("authors", "rest", "rule", "place", "words"),
    [
        ("[an]", PICKLES, "config.undefined", "line 15, column 13", "Did you mean 'ann'"),
        ("[ann, bee]", PICKLES, "config.undefined", "line 15, column 18", "Did you mean 'bea'"),
        ("group:stuff", PICKLES, "config.undefined", "line 15, column 12", "group:staff"),
        ("[any]", PICKLES, "floor.author", "line 15, column 13", "an unknown author"),
        ("[ann, unknown]", PICKLES, "floor.author", "line 15, column 18", "an unknown author"),
        ("[ann, ann]", PICKLES, "config.twice", "line 15, column 12", "twice"),
        ("[]", PICKLES, "config.empty", "line 15, column 12", "empty"),
        ("{ann: cy}", PICKLES, "config.value", "line 15", "list"),
        ("7", PICKLES, "config.value", "line 15", "list"),
        ("[hub]", PICKLES, "config.no-effect", "line 15, column 13", "needs no listing"),
        ("[ann]", "", "config.no-effect", "line 15, column 12", "have no effect here"),
        (
            "[ann]",
            "  deserializers: [dask, msgpack]\n",
            "config.no-effect",
            "line 15, column 12",
            "have no effect here",
        ),
    ],
)
def test_what_means_nothing_is_refused_at_its_place(
    authors: str, rest: str, rule: str, place: str, words: str
) -> None:
    error = refused(authors, rest)
    assert error.rule == rule
    assert place in error.where
    assert words in str(error)


def test_a_group_may_pass_on_what_others_of_it_wrote() -> None:
    text = HEAD.replace("sender: hub", "sender: group:staff") + "  authors: group:staff\n" + PICKLES
    loaded = Policy.parse(text)
    assert loaded.decide(Context("ann", "me"), "pickle", author="bea").permitted
    assert not loaded.decide(Context("ann", "me"), "pickle", author="cy").permitted


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
