"""Pickles that no honest object writes, through the real pickler, and how tests ask for a refusal.

The one rule: nothing here is called; what is named is written down, and only the loader reads it.
"""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from safeser.errors import SafeserError
from safeser.gate.values import Limits
from safeser.pickles import DATA_PROFILES, Budget, Profile, loads, parse

PROFILE = ("data", "numpy", "pandas")


class Called:
    """Pickles as a call of *function* with *args*, and then BUILD with *state*."""

    def __init__(self, function: Any, *args: Any, state: Any = None) -> None:
        self.made = (function, args, state)

    def __reduce_ex__(self, protocol: int) -> Any:
        function, args, state = self.made
        return (function, args) if state is None else (function, args, state)


class New:
    """Pickles as an instantiation of *kind* without arguments, and then BUILD with *state*."""

    def __init__(self, kind: type, state: Any) -> None:
        self.kind, self.state = kind, state

    @property
    def __class__(self) -> type:
        return self.kind  # the pickler compares it with what it writes

    def __reduce_ex__(self, protocol: int) -> Any:
        return copyreg.__newobj__, (self.kind,), self.state


def opened(forged: Any, *, protocol: int = 5) -> Any:
    """Return what safeser makes of *forged*, or raise its refusal."""
    return loads(pickle.dumps(forged, protocol), profile=PROFILE)


def reopened(value: Any, protocol: int | None) -> Any:
    """Return *value* after a way through pickle and safeser; None stands for buffers apart."""
    if protocol is not None:
        return loads(pickle.dumps(value, protocol), profile=PROFILE)
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, 5, buffer_callback=buffers.append)
    return loads(data, buffers=[bytearray(b.raw()) for b in buffers], profile=PROFILE)


def refused(rule: str, call: Callable[..., object], *args: Any, **options: Any) -> SafeserError:
    """Check that *call* raises an error of *rule*, and return it."""
    with pytest.raises(SafeserError) as caught:
        call(*args, **options)
    assert caught.value.rule == rule
    return caught.value


def family_of(
    data: Any,
    *,
    profiles: str | Sequence[str] = DATA_PROFILES,
    limits: Limits | None = None,
    budget: Budget | None = None,
) -> str:
    """Return the family of a pickle by its content, as :mod:`safeser.families` derives it."""
    parsed = parse(data, limits=limits or Limits(), budget=budget)
    return parsed.family(Profile.of(profiles))
