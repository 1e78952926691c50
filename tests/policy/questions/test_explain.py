"""Advice: an edit that is proposed loads, permits what was denied, and says its risk."""

from __future__ import annotations

import json
from typing import Any

from safeser.policy import Policy, explain
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
