"""``safeser policy diff``: exact against the reference evaluator, and short for people."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.gate.values import Context
from safeser.operations import NAMES as OPERATION_NAMES
from safeser.policy import Policy, ready_policies
from safeser.policy.questions.difference import Change, Difference, compare
from safeser.policy.questions.difference_text import as_json, lines
from safeser.policy.ready import locate
from safeser.policy.rules import WEAKEST
from tests.draws import draws
from tests.policy.random_policies import DATES, QUESTIONS, loaded, policies
from tests.policy.reference import reference

READY = {name: locate(name).read_text("utf-8") for name in ready_policies()}


@cache
def ready(name: str) -> Policy:
    return Policy.parse(READY[name])


def edited(name: str, *changes: tuple[str, str]) -> Difference:
    text = READY[name]
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return compare(ready(name), Policy.parse(text))


def said(difference: Difference) -> list[str]:
    signs = {"loosens": "+", "tightens": "-", "renames": "~"}
    return [
        " ".join([signs[e], text, "; ".join(below)]).rstrip()
        for e, text, below in lines(difference)
    ]


# --- exact ----------------------------------------------------------------------------------------


def where(difference: Difference) -> dict[tuple[Any, ...], str]:
    """Return the effect of each change by what is asked at which single hop."""
    found = {}
    for change in difference.changes:
        for hop in change.hops:
            for sender in hop.senders:
                authors = [each for each in change.authors if each != sender] or [""]
                for recipient in hop.recipients:
                    for way in hop.ways:
                        for author in authors if change.authors else [""]:
                            key = (sender, recipient, hop.kind, way, named(change), author)
                            assert found.get(key) in (None, change.effect)
                            found[key] = change.effect
    return found


def named(change: Change) -> tuple[str, str, str]:
    if change.permission.what == "until":  # which date it was is told apart below
        return "until", "", ""
    return change.permission[:3]


def keys(question: tuple[Context, Any, bool, str | None]) -> list[tuple[Any, ...]]:
    """Return the changes, any of which can change the answer to *question*."""
    context, family, sealing, author = question
    ends = [
        name if name != "stranger" else "unknown" for name in (context.sender, context.recipient)
    ]
    hop = (*ends, context.kind, (context.transport, context.same_host))
    by = (
        "" if author in (None, context.sender) or family in ("msgpack", "error", "dask") else author
    )
    asked: list[tuple[Any, ...]] = [
        (*hop, ("ask", context.operation, ""), ""),
        (*hop, ("until", "", ""), ""),
    ]
    if family == "sealed":
        asked.append((*hop, ("sealed", context.operation or "replies", ""), by))
    else:
        carried = "msgpack" if family == "error" else family
        asked.append((*hop, ("carry", carried, "write" if sealing else "open"), by))
    return asked


def possible(context: Context) -> bool:
    return context.operation not in OPERATION_NAMES or (
        WEAKEST[context.operation].strength <= context.kind.strength
    )


@pytest.mark.slow
@given(policies(), policies(), st.integers(0, 12), st.sampled_from(("", *DATES, "2026-07-01")))
@draws(15)
def test_what_the_reference_answers_differently_is_a_change(
    old: dict[str, Any], new: dict[str, Any], first: int, day: str
) -> None:
    """On any day: what ends earlier or later is a change, too."""
    found = where(compare(loaded(old), loaded(new)))
    for question in QUESTIONS[first::13]:
        context, family, sealing, author = question
        before, after = (
            reference(each, context, family, sealing, author, day=day)[0] for each in (old, new)
        )
        if before != after and possible(context):
            effect = "loosens" if after else "tightens"
            assert effect in {found.get(key) for key in keys(question)}, question


@pytest.mark.slow
@given(policies(), policies())
@draws(8)
def test_each_change_is_answered_differently_by_the_reference(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    for key, effect in where(compare(loaded(old), loaded(new))).items():
        sender, recipient, kind, (transport, same_host), (what, value, side), author = key
        if what not in ("ask", "carry", "sealed"):
            continue
        context = Context(sender, recipient, kind, transport=transport, same_host=same_host)
        family = "msgpack" if what == "ask" else value
        if what == "ask" or (what == "sealed" and value != "replies"):
            context = replace(context, operation=value)
        if what == "sealed":
            family = "sealed"
        before, after = (
            reference(each, context, family, side == "write", author or None)[0]
            for each in (old, new)
        )
        assert (before, after) == ((False, True) if effect == "loosens" else (True, False)), key


# --- for people -----------------------------------------------------------------------------------


VIEWERS = "    operations: {grant: [look, get_task_stream, profile]}"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            [(VIEWERS, f"    deserializers: [dask, msgpack]\n{VIEWERS}")],
            ["+ group:viewers -> scheduler: now may have recipients open dask"],
        ),
        (
            [(VIEWERS, VIEWERS.replace("get_task_stream, ", ""))],
            ["- group:viewers -> scheduler: may no longer ask for get_task_stream"],
        ),
        (
            [
                (
                    "  dashboard: {groups: [viewers]}",
                    "  dashboard: {groups: [viewers]}\n  dave: {groups: [engineers]}",
                )
            ],
            ["+ dave: now granted what carol is (was unknown)"],
        ),
        (
            [("  alice: {groups: [viewers]}", "  anna: {groups: [viewers]}")],
            ["~ alice is called anna now, with the same grants"],
        ),
        (
            [("max_bytes: 2GiB", "max_bytes: 4GiB")],
            ["+ limits.max_bytes: 2,147,483,648 -> 4,294,967,296"],
        ),
        (
            [("max_depth: 100", "max_depth: 50")],
            ["- limits.max_depth: 100 -> 50"],
        ),
        (
            [("revision: 1\n", "revision: 1\ndashboard: {address: '192.0.2.1'}\n")],
            ["+ dashboard.address: added, 192.0.2.1"],
        ),
    ],
)
def test_one_edit_reads_as_one_line(changes: list[tuple[str, str]], expected: list[str]) -> None:
    difference = edited("dask-cluster", *changes)
    assert said(difference) == expected
    assert difference.loosens == any(each[0] in "+~" for each in expected)


KEYS = ["x25519:" + letter * 42 + "A" for letter in "AB"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (("worker: {}", f"worker: {{keys: ['{KEYS[1]}']}}"), "+ key of worker: added, "),
        (("nanny: {}", "nanny: {}\n  zoe: {}"), "+ principal zoe: added"),
        (("principals:\n", "families: [frames]\nprincipals:\n"), "+ families frames: added"),
    ],
)
def test_what_stands_beside_contexts_is_a_setting(changes: tuple[str, str], expected: str) -> None:
    assert any(line.startswith(expected) for line in said(edited("strict", changes)))


def confined(demand: str) -> tuple[str, str]:
    return "worker: {}", f"worker: {{confined: {demand}}}"


@pytest.mark.parametrize(
    ("old", "new", "loosens"),
    [
        ("{read: [/a]}", "{read: [/a, /b]}", True),
        ("{read: [/a, /b]}", "{read: [/a]}", False),
        ("{write: [/a]}", "{read: [/a]}", False),
        ("{read: [/a]}", "{write: [/a]}", True),
        ("{execute: false}", "{execute: true}", True),
        ("{connect: cluster}", "{connect: any}", True),
        ("{ports: [8786, 9000-9099]}", "{ports: [8786]}", False),
        ("{ports: [8786]}", "{ports: [8787]}", True),
        ("{read: [/a]}", None, True),
        (None, "{read: [/a]}", False),
    ],
)
def test_confinement_loosens_where_a_process_may_do_more(
    old: str | None, new: str | None, loosens: bool
) -> None:
    text = READY["dask-cluster"]
    each = [text if one is None else text.replace(*confined(one)) for one in (old, new)]
    difference = compare(*map(Policy.parse, each))
    assert [setting.what for setting in difference.settings] == ["confined worker"]
    assert difference.loosens is loosens


# --- dates and paths of code ----------------------------------------------------------------------

FETCH = "  - name: viewers-fetch\n"


def until(day: str) -> tuple[str, str]:
    return FETCH, f"{FETCH}    until: '{day}'\n"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (None, "2026-06-30", "- {}: may no longer do so after 2026-06-30 (had no end)"),
        ("2026-06-30", None, "+ {}: now may do so without end (was until 2026-06-30)"),
        (
            "2026-06-30",
            "2026-07-31",
            "+ {}: now may do so until 2026-07-31 (was until 2026-06-30)",
        ),
        (
            "2026-06-30",
            "2020-01-01",
            "- {}: may no longer do so after 2020-01-01 (was until 2026-06-30)",
        ),
    ],
)
def test_a_changed_date_reads_as_one_line(old: str | None, new: str | None, expected: str) -> None:
    """Whatever day it is: the clocks of these policies are not read."""
    text = READY["dask-cluster"]
    each = [Policy.parse(text.replace(*until(day)) if day else text) for day in (old, new)]
    difference = compare(*each)
    assert said(difference) == [expected.format("group:viewers -> worker")]
    assert difference.loosens == expected.startswith("+")
    assert not difference.settings


def test_a_new_path_of_code_is_said_in_full() -> None:
    directs = (
        "    recipient: scheduler\n"
        "    serializers: [dask, msgpack, pickle]\n    deserializers: [dask, msgpack, pickle]\n"
    )
    code = directs.replace("pickle]", "pickle, cloudpickle]") + "    submission: code\n"
    difference = edited("strict", (directs, code))
    found = said(difference)
    assert "+ a holder of the key of worker can now run code as nanny, through scheduler" in found
    back = compare(difference.new, difference.old)
    assert said(back)[0] == "- a holder of the key of nanny can no longer run code as scheduler"
    assert not back.loosens
    made = as_json(difference)["paths"]
    assert made[0] == {"effect": "loosens", "path": [["nanny"], ["scheduler"]]}


def test_a_log_that_boxes_need_no_more_loosens() -> None:
    less = edited("shared", ("revision: 1\n", "revision: 1\naudit: none\n"))
    assert [(each.effect, each.what) for each in less.settings] == [("loosens", "audit")]
    with pytest.raises(ConfigError, match="audit"):
        edited("shared", ("revision: 1\n", "revision: 1\naudit: some\n"))
