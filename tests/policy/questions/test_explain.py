"""Advice: an edit that is proposed loads, permits what was denied, and says its risk."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from safeser.errors import ConfigError
from safeser.policy import Policy, explain
from safeser.policy.advice import Edit, edits
from safeser.values import Context

SPELLED: dict[str, Any] = {
    "safeser": 1,
    "name": "test",
    "revision": 4,
    "principals": {"a": {"groups": ["g"]}, "b": {}, "c": {"groups": ["g"]}},
    "contexts": [
        {"name": "plain", "sender": "group:g", "recipient": "b"},
        {"name": "open", "sender": ["b", "unknown"], "recipient": "a"},
        {"name": "some", "sender": "b", "recipient": "c", "kinds": ["data"]},
    ],
}


def loaded(spelled: dict[str, Any] = SPELLED) -> Policy:
    return Policy.parse(json.dumps(spelled, indent=1))


def applied(spelled: dict[str, Any], changes: tuple[Edit, ...]) -> dict[str, Any]:
    edited = copy.deepcopy(spelled)
    for change in changes:
        (rule,) = [rule for rule in edited["contexts"] if rule["name"] == change.context]
        if change.field == "submission":
            rule["submission"] = change.value
        elif change.field == "operations":
            rule.setdefault("operations", {"grant": []})["grant"].append(change.value)
        else:
            rule.setdefault(change.field, ["msgpack"]).append(change.value)
    return edited


def proposed(policy: Policy, context: Context, family: str, sealing: bool) -> tuple[Edit, ...]:
    decision = policy.decide(context, family, sealing=sealing)
    rule = policy.match(context)
    if decision.permitted or rule is None:
        return ()
    query = policy._table.query(context, family, sealing=sealing)
    return edits(decision.rule, query, rule)


@pytest.mark.parametrize("sealing", [False, True])
@pytest.mark.parametrize("family", ["dask", "pickle", "cloudpickle"])
@pytest.mark.parametrize("operation", [None, "identity", "update-graph", "run", "upload_file"])
def test_the_proposed_edits_permit_what_was_denied(
    operation: str | None, family: str, sealing: bool
) -> None:
    context = Context("a", "b", "control", operation)
    spelled: dict[str, Any] = SPELLED
    for _ in range(3):
        policy = loaded(spelled)
        denied = policy.decide(context, family, sealing=sealing)
        changes = proposed(policy, context, family, sealing)
        if not changes:
            break
        assert all(str(change) in denied.fix for change in changes)
        assert "Risk: " in denied.fix
        assert "'plain' (line" in denied.fix
        # Smallest: with any one of the edits left out, it is still denied or does not load.
        for left_out in changes:
            fewer = tuple(change for change in changes if change is not left_out)
            assert lifts(applied(spelled, fewer), context, family, sealing, denied.rule) is False
        spelled = applied(spelled, changes)
        assert lifts(spelled, context, family, sealing, denied.rule)
    assert loaded(spelled).decide(context, family, sealing=sealing).permitted


def lifts(spelled: dict[str, Any], context: Context, family: str, sealing: bool, rule: str) -> bool:
    """Tell whether *spelled* loads and no longer denies by *rule*, nor by a neighbour of it."""
    try:
        decision = loaded(spelled).decide(context, family, sealing=sealing)
    except ConfigError:
        return False
    return decision.rule not in {rule, "submission.none"}


def test_an_explanation_walks_the_contexts() -> None:
    policy = loaded()
    answer = explain(policy, Context("b", "c", "task"), "dask", author="a")
    assert not answer.decision.permitted
    assert answer.decision == policy.decide(Context("b", "c", "task"), "dask", author="a")
    assert [step.rpartition(": ")[2] for step in answer.steps] == [
        "not for sender b",
        "not for recipient c",
        "not for kind task",
        "deny",
        "suite authenticate or stricter",
    ]
    assert "written by a" in answer.question
    assert "under test revision 4" in answer.question
    assert "\n  rule: context.none of policy test revision 4, on c\n" in str(answer)
    assert "\n  fix: Add this context: " in answer.text


def test_an_explanation_stops_at_the_match() -> None:
    answer = explain(loaded(), Context("a", "b", "data"), "msgpack", sealing=True)
    assert answer.decision.permitted
    assert len(answer.steps) == 2
    assert "plain: matches" in answer.steps[0]
    assert "fix: " not in answer.text


def test_strangers_are_said_to_be_strangers() -> None:
    answer = explain(loaded(), Context("zed", "a", "data", "no\nsuch\x1b"), "pickle")
    assert answer.steps[0] == "zed is not listed under 'principals' and counts as unknown"
    assert all(line.isprintable() for line in answer.text.splitlines())
