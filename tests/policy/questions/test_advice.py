"""What a refusal says to write, written into the policy, permits what was refused."""

from __future__ import annotations

import copy
import re
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from safeser.gate.decision import SUBMITTING
from safeser.gate.values import HARMLESS, Context, Kind
from safeser.policy.questions.explain import explain
from safeser.policy.rules import WEAKEST
from tests.draws import draws
from tests.policy.random_policies import (
    FAMILIES,
    NAMES,
    OPERATIONS_ASKED,
    loaded,
    policies,
)

_CHANGE = re.compile(r"In context '(?P<name>[^']+)' \(line \d+\), (?P<words>.*?)\. Risk: ")
_WORD = re.compile(
    r"add (?P<value>[\w-]+) to '(?P<field>[\w: ]+)'|set 'submission: (?P<submission>\w+)'"
)
_NEW = re.compile(r"^Add this context: '(?P<text>\{.*?\})'\. Risk: ")
_ABOVE = re.compile(
    r"^Context '(?P<name>[^']+)' \(line \d+\) also covers unknown: put this context above it:"
    r" '(?P<text>\{.*?\})'\. Risk: "
)


def followed(spelled: dict[str, Any], advice: str) -> dict[str, Any] | None:
    """Return *spelled* edited as *advice* says; None if it says to edit nothing."""
    edited = copy.deepcopy(spelled)
    contexts = edited["contexts"]
    at = {rule["name"]: index for index, rule in enumerate(contexts)}
    if found := _CHANGE.match(advice):
        rule = contexts[at[found["name"]]]
        words = found["words"]
        assert _WORD.sub("", words).replace(", ", "") == "", words
        for word in _WORD.finditer(words):
            if word["submission"]:
                rule["submission"] = word["submission"]
            elif word["field"] == "operations: grant":
                rule.setdefault("operations", {"grant": []})["grant"].append(word["value"])
            else:
                default = [] if word["field"] == "authors" else ["msgpack"]
                rule.setdefault(word["field"], default).append(word["value"])
    elif found := _NEW.match(advice):
        contexts.append(YAML(typ="safe").load(found["text"]))
    elif found := _ABOVE.match(advice):
        contexts.insert(at[found["name"]], YAML(typ="safe").load(found["text"]))
    else:
        return None
    return edited


@st.composite
def asked(draw: st.DrawFn) -> tuple[Context, Any, bool, str | None]:
    """Return a question about a message as Dask or a program sends it."""
    operation = draw(st.sampled_from(OPERATIONS_ASKED))
    weakest = WEAKEST.get(operation, Kind.ADMIN).strength
    kind = draw(st.sampled_from([each for each in Kind if each.strength >= weakest]))
    sealing = draw(st.booleans())
    context = Context(
        draw(st.sampled_from(NAMES)),
        draw(st.sampled_from(NAMES)),
        kind,
        operation,
        transport=draw(st.sampled_from(("safeser", "library"))),
        same_host=draw(st.booleans()),
    )
    author = None if sealing else draw(st.sampled_from((None, "a", "b", "c", "any")))
    return context, draw(st.sampled_from(FAMILIES)), sealing, author


@given(policies(), asked())
@draws(60)
def test_what_is_advised_permits(
    spelled: dict[str, Any], question: tuple[Context, Any, bool, str | None]
) -> None:
    context, family, sealing, author = question
    decision = loaded(spelled).decide(context, family, sealing=sealing, author=author)
    assume(not decision.permitted)
    # Of other sealed messages no context says more than that they belong to submitted work.
    assume(family != "sealed" or context.operation in SUBMITTING)
    edited = followed(spelled, decision.fix)
    if edited is None:
        assert decision.fix.startswith(("No policy can permit ", "List the principal "))
        check_that_none_can(context, family, author)
        return
    after = explain(loaded(edited), context, family, sealing=sealing, author=author)
    assert after.decision.permitted, str(after)


def check_that_none_can(context: Context, family: Any, author: str | None) -> None:
    """Tell whether a floor stands in the way of this question, whatever a policy says."""
    stranger = "stranger" in (context.sender, context.recipient)
    unknown_family = family in (None, "cuda")
    unlisted = context.operation is not None and context.operation not in WEAKEST
    powerful = family not in HARMLESS
    floors = (
        stranger,
        unknown_family,
        unlisted,
        context.kind is Kind.ADMIN and family != "msgpack",
        powerful and author == "any",
        powerful and author is not None and context.transport != "safeser",
        family == "sealed",
    )
    assert any(floors)
