"""The nearest spelling: found among few names, and looked for in a bounded number of short ones."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import pytest

from safeser.policy.source.faults import did_you_mean


def test_a_misspelt_name_is_found() -> None:
    assert did_you_mean("alcie", ["bob", "alice"]) == "Did you mean 'alice'?"
    assert did_you_mean("zz", ["b", "a"]) == "Known here: a, b."
    assert did_you_mean("zz", []) == ""


@pytest.mark.parametrize("wrong", ["worker0001x", "worker9999x", "a", "zz"])
def test_few_of_many_names_are_compared(monkeypatch: pytest.MonkeyPatch, wrong: str) -> None:
    compared: list[Sequence[str]] = []
    real = difflib.get_close_matches

    def close(word: str, names: Sequence[str], **kwargs: Any) -> list[str]:
        compared.append(names)
        return real(word, names, **kwargs)

    monkeypatch.setattr(difflib, "get_close_matches", close)
    said = did_you_mean(wrong, [f"worker{n:04}" for n in range(10_000)] + ["p" * 41 + wrong] * 2)
    assert len(compared[0]) == 200
    assert max(map(len, compared[0])) <= 40
    if wrong.startswith("worker"):
        assert said == f"Did you mean {wrong[:-1]!r}?"


def test_long_names_are_not_compared() -> None:
    assert did_you_mean("p" * 60, ["p" * 59]) == f"Known here: {'p' * 59}."
