"""What restricted pickle and family dask say of one value, each by its own whole way.

The one rule: both see the same value under the default limits, and neither is told of the other.
"""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

from safeser import families, pickles
from safeser.errors import SafeserError
from safeser.gate.values import Grant
from tests.types.only_one import TYPES_OF_PICKLE

__all__ = ["Verdict", "by_pickle", "by_typed", "compared"]

PROFILE = pickles.Profile.named(*pickles.DATA_PROFILES)
FAMILIES = ("dask", "msgpack")
_GRANT = Grant("both", FAMILIES)


class Verdict(NamedTuple):
    """What became of a value: what arrived, or by which rule and why nothing did.

    :param sent: whether its sender let it go.
    """

    value: Any = None
    rule: str = ""
    message: str = ""
    sent: bool = True


def by_pickle(value: Any) -> Verdict | None:
    """Send *value* as a pickle; None where pickle cannot write it."""
    try:
        data = pickle.dumps(value, 5)
    except Exception:  # whatever a library raises for what it does not pickle
        return None
    try:
        return Verdict(pickles.loads(data, profile=PROFILE))
    except SafeserError as error:
        return Verdict(None, error.rule, error.message)


def by_typed(value: Any) -> Verdict:
    """Send *value* as typed values."""
    try:
        header, frames = families.serialize(value, FAMILIES)
    except SafeserError as error:
        return Verdict(None, error.rule, error.message, sent=False)
    try:
        return Verdict(families.deserialize(header, [bytes(frame) for frame in frames], _GRANT))
    except SafeserError as error:
        return Verdict(None, error.rule, error.message)


def compared(value: Any) -> tuple[Verdict, Verdict] | None:
    """Return what both spellings say of *value*, or None where only one of them knows of it."""
    pickled = by_pickle(value)
    if pickled is None or (pickled.rule and not _loads(value)) or type(value) in TYPES_OF_PICKLE:
        return None
    return pickled, by_typed(value)


def _loads(value: Any) -> bool:
    """Tell whether pickle loads what it wrote of *value*; some scalars of Arrow's it does not."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:  # whatever the library raises
        return False
    return True
