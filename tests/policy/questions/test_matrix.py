"""The matrix of ``safeser policy show``: right, in 80 columns, and as a page that loads nothing."""

from __future__ import annotations

import itertools
from html.parser import HTMLParser

import pytest

from safeser.gate.values import Context, Kind
from safeser.policy import Policy, ready_policies
from safeser.policy.questions.matrix import LEGEND, matrix, page


def cells(policy: Policy) -> dict[tuple[str, str], str]:
    shown = matrix(policy)
    return {
        (shown.classes[one], shown.classes[other]): cell
        for (one, other), cell in shown.cells.items()
    }


@pytest.mark.parametrize("name", ready_policies())
def test_a_letter_never_says_less_than_what_passes(name: str) -> None:
    policy = Policy.load(name)
    shown = cells(policy)
    order = [*LEGEND]
    for (senders, recipients), cell in shown.items():
        for sender, recipient in itertools.product(policy.principals, policy.principals):
            if (sender, recipient) != (senders, recipients):
                continue
            for kind, letter in zip(Kind, cell, strict=True):
                for family, least in (("msgpack", "m"), ("pickle", "p"), ("cloudpickle", "C")):
                    if policy.decide(Context(sender, recipient, kind), family).permitted:
                        assert order.index(letter) >= order.index(least)


def test_strangers_have_a_row_where_a_context_names_them() -> None:
    shown = cells(Policy.load("stock-cluster"))
    assert shown["unknown", "client"] == "md.."
    assert not any("unknown" in pair for pair in cells(Policy.load("default")))
    assert cells(Policy.load("trusted")) == {("every principal", "every principal"): "mCCC"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("name", ready_policies())
def test_the_page_loads_nothing_and_holds_everything(name: str) -> None:
    policy = Policy.load(name)
    made = _Page()
    made.feed(page(policy))
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in made.tags}
    assert not any({"src", "href", "onclick", "style"} & attrs.keys() for _, attrs in made.tags)
    assert "url(" not in made.text
    for rule in policy.contexts:
        assert rule.name in made.text


def test_text_of_a_policy_is_escaped() -> None:
    policy = Policy.parse(
        "safeser: 1\nname: x\nrevision: 1\nprincipals: {a: {}, b: {}}\ncontexts:\n"
        "- name: c\n  sender: a\n  recipient: b\n  deserializers: [dask, msgpack]\n"
        "  dask: {types: ['my.lib:Thing']}\n"
    )
    (rule,) = policy.contexts
    object.__setattr__(rule, "authors", frozenset({"<script>alert(1)</script>"}))
    assert "<script>" not in page(policy)
    assert "&lt;script&gt;" in page(policy)
