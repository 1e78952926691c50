"""Findings of ``safeser policy lint`` about grants, roles, names and dates."""

from __future__ import annotations

import datetime

import pytest

from safeser.gate.key_pairs import PrivateKey
from safeser.identity import Roster
from safeser.policy import Policy
from safeser.policy.questions.lint import lint
from safeser.policy.questions.lint_grants import find_dates, find_narrowed
from safeser.policy.ready import locate


def found(name: str, *changes: tuple[str, str]) -> list[tuple[str, bool, str]]:
    text = locate(name).read_text("utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    findings = lint(Policy.parse(text), today=datetime.date(2026, 3, 15))
    return [(each.rule, each.is_note, each.message) for each in findings if each.rule not in CODE]


#: Paths of code have tests of their own: test_acknowledged.py.
CODE = ("lint.code", "lint.acknowledged")


def test_a_worker_without_shuffles_is_found() -> None:
    lacking = "get_data, shuffle_receive]", "get_data]"
    assert found("strict", lacking) == [
        ("lint.role", False, "worker lacks shuffle_receive towards worker, which its role needs")
    ]


def test_a_request_of_its_name_is_not_the_word_that_ends_a_worker() -> None:
    """``close`` as a request ends one connection; on the stream of a worker it is authority."""
    directs = "grant: [basic, cluster, run, plugins, control, files, diagnose, actors]}"
    kinds = "kinds: [admin, data, task]\n    operations: {grant: [basic, cluster]}"
    assert found("strict", (f"operations: {{{directs}", kinds)) == [
        ("lint.role", False, "scheduler lacks close towards worker, which its role needs")
    ]


def test_a_principal_that_no_context_names_is_found() -> None:
    assert found("strict", ("nanny: {}", "nanny: {}\n  zoe: {}")) == [
        (
            "lint.principal",
            False,
            "no context names zoe, which can neither send nor receive anything",
        )
    ]


def test_a_dashboard_of_a_process_that_opens_code_is_found() -> None:
    address = "revision: 1\n", "revision: 1\ndashboard: {address: '192.0.2.1'}\n"
    (finding,) = found("strict", address)
    assert finding[0] == "lint.dashboard"
    assert "192.0.2.1" in finding[2]
    assert found("dask-cluster", address) == []


PROFILE = "    pickle: {profile: [data, numpy, pandas]}\n    operations: {grant: [identity, close"


@pytest.mark.parametrize(
    ("name", "role", "message"),
    [
        ("tests.policy.named:Point", "class", None),
        ("tests.policy.named:add", "reference", None),
        ("tests.policy.named:add", "class", "is no class"),
        ("tests.policy.named:Missing", "class", "cannot be imported: AttributeError"),
        ("tests.policy.missing:Point", "class", "cannot be imported: ModuleNotFoundError"),
        ("tests.policy.raising:Point", "class", "cannot be imported: ZeroDivisionError"),
        ("tests.policy.named:Path", "class", "is refused by each load"),
        ("no_such_package.deep:Point", "class", "was not checked"),
    ],
)
def test_allowed_names_are_looked_up(name: str, role: str, message: str | None) -> None:
    changed = PROFILE.replace("pandas]", f"pandas], allow: {{'{name}': {role}}}")
    rules = found("strict", (PROFILE, changed))
    if message is None:
        assert rules == []
    else:
        ((rule, is_note, text),) = rules
        assert rule == "lint.name"
        assert is_note == ("not checked" in message)
        assert message in text


def test_keys_that_end_are_found() -> None:
    policy = Policy.parse(
        "safeser: 1\nname: x\nrevision: 1\nprincipals: {a: {}, b: {}, c: {}, d: {}}\ncontexts:\n"
        "- {name: c, sender: [a, b, c, d], recipient: [a, b, c, d]}\n"
    )
    one, two, three = (PrivateKey.generate().public.text for _ in range(3))
    roster = Roster.parse(
        f"{one} a active 2026-01-01\n"
        f"{two} b active 2026-01-01 not_after=2026-03-10\n"
        f"{three} c active 2026-01-01 not_after=2026-01-10\n"
    )
    assert [
        (each.rule, each.message, each.is_note)
        for each in find_dates(policy, roster, today=datetime.date(2026, 3, 1))
    ] == [
        ("lint.date", "the last key of b ends on 2026-03-10", True),
        ("lint.date", "c has no key that opens sessions today", False),
        ("lint.date", "d has no key that opens sessions today", True),
    ]


CODE_FIELDS = {
    "submission": "code",
    "serializers": "[msgpack, pickle, cloudpickle]",
    "deserializers": "[msgpack, pickle, cloudpickle]",
    "operations": "{grant: [basic, cluster]}",
}


def narrowed(*contexts: dict[str, str]) -> list[tuple[str, bool, str]]:
    """Return for each finding its first and second context, whether it is a note, and its fix."""
    lines = [
        f"- {{{', '.join(f'{k}: {v}' for k, v in {'name': f'c{at}', **PAIR, **each}.items())}}}\n"
        for at, each in enumerate(contexts)
    ]
    head = "safeser: 1\nname: x\nrevision: 1\nprincipals: {ann: {}, bea: {}, cy: {}}\ncontexts:\n"
    policy = Policy.parse(head + "".join(lines)).as_of(None)
    return [
        (each.message.split("'")[1] + " " + each.message.split("'")[3], each.is_note, each.fix)
        for each in find_narrowed(policy)
        if each.rule == "lint.narrowed"
    ]


SUBMITS = {**CODE_FIELDS, "operations": "{grant: [basic, cluster, update-graph]}"}
WARNS = {"key_conflicts": "{definition: warn}"}
PAIR = {"sender": "ann", "recipient": "bea"}
BOTH = {**CODE_FIELDS, "sender": "[ann, cy]"}


def test_a_peer_of_an_unmeasured_host_is_not_held_back_by_a_narrowed_context() -> None:
    """What the finding is about: the denial decides nothing where the fact is unknown."""
    ((names, is_note, fix),) = narrowed({"same_host": "false"}, CODE_FIELDS)
    assert (names, is_note) == ("c0 c1", False)
    assert "Take 'same_host' out of 'c0'" in fix
    assert "or let 'c1' ask for 'same_host' as well" in fix


@pytest.mark.parametrize(
    ("contexts", "found"),
    [
        # Each field that a peer may leave unknown, and both values.
        ([{"same_host": "true"}, CODE_FIELDS], ["c0 c1"]),
        ([{"transport": "library"}, CODE_FIELDS], ["c0 c1"]),
        ([{"transport": "safeser", "same_host": "false"}, CODE_FIELDS], ["c0 c1"]),
        # Of two that follow each other, the one that decides is named.
        ([{"same_host": "false"}, {"operations": "{grant: basic}"}, BOTH], ["c0 c1"]),
        ([{"same_host": "false"}, {}, BOTH], []),
        ([{"kinds": "[admin]"}, {"same_host": "false"}, BOTH], ["c1 c2"]),
        ([{"same_host": "false"}, {"transport": "safeser"}, CODE_FIELDS], ["c0 c2", "c1 c2"]),
        # What is less: each field, for each kind that both match.
        ([{"same_host": "false"}, {"serializers": "[dask, msgpack]"}], ["c0 c1"]),
        ([{"same_host": "false"}, {"values": "cy", "operations": "{grant: gather}"}], ["c0 c1"]),
        ([{"same_host": "false"}, {}], []),
        ([{"same_host": "false"}, {"audit_failure": "go-on"}], ["c0 c1"]),
        ([{"same_host": "false", "audit_failure": "go-on"}, {}], []),
        ([{"same_host": "false", **SUBMITS}, {**SUBMITS, **WARNS}], ["c0 c1"]),
        ([{"same_host": "false", **SUBMITS, **WARNS}, SUBMITS], []),
        ([{"same_host": "true", **CODE_FIELDS}, {"operations": "{grant: basic}"}], []),
        ([{"same_host": "false", "kinds": "[admin]"}, {"serializers": "[dask, msgpack]"}], []),
        ([{"same_host": "false", "kinds": "[admin]"}, CODE_FIELDS], ["c0 c1"]),
        # Another pair, and facts for which both ask.
        ([{"same_host": "false"}, {**CODE_FIELDS, "sender": "cy"}], []),
        ([{"same_host": "false"}, BOTH], ["c0 c1"]),
        ([{"same_host": "false"}, {**CODE_FIELDS, "same_host": "true"}], []),
        ([{"transport": "library"}, {**CODE_FIELDS, "transport": "safeser"}], []),
        ([{"same_host": "false"}, {**CODE_FIELDS, "transport": "safeser"}], ["c0 c1"]),
    ],
)
def test_narrowed_contexts(contexts: list[dict[str, str]], found: list[str]) -> None:
    assert [names for names, is_note, _ in narrowed(*contexts) if not is_note] == found


def test_a_context_that_ends_is_not_followed_by_what_grants_more() -> None:
    until = {"until": "'2026-06-30'"}
    assert narrowed(until, BOTH) == [
        ("c0 c1", True, "Take 'c0' out on the day from which 'c1' is to decide.")
    ]
    assert narrowed({**until, **CODE_FIELDS}, {**BOTH, "operations": "{grant: basic}"}) == []


def test_a_user_and_a_scheduler_that_lack_operations_are_found() -> None:
    client = "grant: [basic, diagnose, run, plugins, control, actors, subscribe_worker_status]"
    directs = "grant: [basic, cluster, run, plugins, control, files, diagnose, actors]"
    some = "grant: [update-graph, register-client]"
    rules = found("strict", (client, some), (directs, "grant: [compute-task]"))
    said = {text.partition(" lacks ")[0]: text for rule, _, text in rules if rule == "lint.role"}
    assert said.keys() == {"scheduler", "client"}
    assert "gather" in said["client"]
    assert "free-keys" in said["scheduler"]
