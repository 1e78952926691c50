"""The family of a pickle by its content, as :mod:`safeser.families` derives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safeser.pickles import DATA_PROFILES, Budget, Profile, parse
from safeser.values import Limits


def family_of(
    data: Any,
    *,
    profiles: str | Sequence[str] = DATA_PROFILES,
    limits: Limits | None = None,
    budget: Budget | None = None,
) -> str:
    parsed = parse(data, limits=limits or Limits(), budget=budget)
    return parsed.family(Profile.of(profiles))
