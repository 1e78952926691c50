"""Fields are declared once: what a declaration says is what each reader of it shows."""

from __future__ import annotations

import pytest

from safeser.errors import ConfigError
from safeser.policy import Policy
from safeser.policy.schema import json_schema
from safeser.policy.source import faults
from safeser.policy.source.context import Rule
from safeser.policy.source.forms import Reader, Section
from safeser.policy.source.scope import Scope

HEAD = "safeser: 1\nname: t\nrevision: 1\n"
PRINCIPALS = "principals: {a: {groups: [g]}, b: {}}\n"
CONTEXT = "contexts:\n- {name: x, sender: 'group:g', recipient: b, serializers: [msgpack, mine]}\n"


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        Policy.parse(text, source="p")
    return caught.value


def test_every_field_of_a_context_is_shown_but_those_by_which_it_matches() -> None:
    unseen = {field.attribute for field in Rule.fields.values() if not field.shown}
    assert unseen == {"name", "senders", "recipients", "kinds"}


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
    with pytest.raises(AttributeError):
        rule.senders = frozenset({"b"})  # type: ignore[misc]  # that is what is tested
    for values in ({"name": "x"}, {"name": "x", "senders": (), "recipients": (), "line": 1}):
        with pytest.raises(TypeError):
            Rule(**values)
    scope = Scope()
    scope.define_principals({"a": ()})
    spelled = {"name": "x", "sender": "a", "recipient": "a"}
    reader = Reader(scope)
    assert Section(Rule).read(spelled, (), reader).senders == {"a"}
    assert reader.faults == []
    for more in ("line", "senders", "_place"):
        reader = Reader(scope)
        Section(Rule).read({**spelled, more: ["a"]}, (), reader)
        assert [(each.kind, each.path) for each in reader.faults] == [("unknown", (more,))]


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
