"""Fields are declared once: what a declaration says is what each reader of it shows."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from safeser.errors import ConfigError
from safeser.policy import Policy
from safeser.policy.schema import json_schema
from safeser.policy.source import faults
from safeser.policy.source.context import Rule
from safeser.policy.source.fields import Stated
from safeser.policy.source.scope import Scope

HEAD = "safeser: 1\nname: t\nrevision: 1\n"
PRINCIPALS = "principals: {a: {groups: [g]}, b: {}}\n"
CONTEXT = "contexts:\n- {name: x, sender: 'group:g', recipient: b, serializers: [msgpack, mine]}\n"


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Policy.parse(text, source="p")
    return caught.value


def test_every_field_of_a_context_is_shown_but_those_by_which_it_matches() -> None:
    declared = {
        name: [each for each in field.metadata if isinstance(each, Stated)]
        for name, field in Rule.model_fields.items()
    }
    assert {name for name, found in declared.items() if not found} == {"name"}
    assert {name for name, found in declared.items() if found and not found[0].shown} == {
        "senders",
        "recipients",
        "kinds",
    }


def test_every_field_with_fixed_words_offers_them() -> None:
    context = json_schema()["$defs"]["Rule"]["properties"]
    assert context["submission"]["enum"] == ["none", "sealed", "code"]
    assert context["submission"]["default"] == "none"


def test_sections_stand_in_any_order_of_the_file() -> None:
    families = "families: [mine]\n"
    one = Policy.parse(HEAD + families + PRINCIPALS + CONTEXT)
    other = Policy.parse(HEAD + CONTEXT + PRINCIPALS + families)
    assert [rule.senders for rule in one.contexts] == [frozenset({"a"})]
    assert one.contexts[0].senders == other.contexts[0].senders
    assert one.families == other.families == {"mine"}


def test_a_rule_cannot_be_changed_and_has_no_field_beyond_those_declared() -> None:
    (rule,) = Policy.parse(HEAD + "families: [mine]\n" + PRINCIPALS + CONTEXT).contexts
    with pytest.raises(ValidationError):
        rule.senders = frozenset({"b"})  # type: ignore[misc]  # that is what is tested
    scope = Scope()
    scope.define_principals({"a": ()})
    spelled = {"name": "x", "sender": "a", "recipient": "a"}
    assert Rule.model_validate(spelled, context=scope).senders == {"a"}
    for more in ({"line": 1}, {"senders": ["a"]}, {"_line": 1}):
        with pytest.raises(ValidationError):
            Rule.model_validate({**spelled, **more}, context=scope)


def test_only_reported_names_are_compared_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each comparison takes milliseconds, and a file may have tens of thousands of names."""
    compared: list[str] = []
    real = faults.difflib.get_close_matches

    def counting(word: str, *args: object, **options: object) -> list[str]:
        compared.append(word)
        return real(word, *args, **options)  # type: ignore[arg-type, call-overload, no-any-return]

    monkeypatch.setattr(faults.difflib, "get_close_matches", counting)
    names = ", ".join(f"n{number}" for number in range(3_000))
    contexts = f"contexts:\n- {{name: x, sender: [{names}], recipient: [a, c], kinds: [dat]}}\n"
    error = refused(HEAD + PRINCIPALS + contexts)
    assert (error.rule, compared) == ("config.undefined", [f"n{at}" for at in range(20)])
    assert "'n0'" in error.message
