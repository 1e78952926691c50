"""Errors keep their type and text, whatever their classes do."""

from __future__ import annotations

import dataclasses
import traceback

import pytest

from safeser.errors import ConfigError, PolicyDenied
from safeser.families.errors.unsent import _text
from safeser.tracebacks import for_callers


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    text: str


class Closed(Exception):
    def __setattr__(self, name, value):
        raise AttributeError(name)

    @property
    def __cause__(self):
        raise ValueError("no cause")


@pytest.mark.parametrize("error", [Frozen("x"), Closed("x")])
def test_an_error_whose_class_takes_no_attributes_is_raised_as_it_is(error):
    @for_callers
    def fail():
        raise error

    with pytest.raises(type(error)) as caught:
        fail()
    assert caught.value is error
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "fail"


def test_no_part_of_a_message_makes_a_line_of_its_own_or_controls_a_terminal():
    forged = PolicyDenied("a\nrule: x\x1b[2J\u202e", rule="policy", fix="\x1b]0;t\x07")
    assert str(forged).split("\n") == ["a rule: x?[2J?", "  rule: policy", "  fix: ?]0;t?"]
    assert str(ConfigError("a\nb [config] ok\nsecond")) == "a b [config] ok second [config]"


def test_an_error_without_a_text_is_named():
    class Silent(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    assert _text(Silent()) == "Silent"
