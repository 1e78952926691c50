"""Attacks as data: a message, its sender, its recipient and the rule that must refuse it.

The one rule: a row outlives the code that it attacked. What a deletion takes out of safeser's
promises stays here with ``rule=None``: the message is admitted, and SECURITY.md says whose risk
that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Row"]


@dataclass(frozen=True, slots=True)
class Row:
    """One hostile message of a peer with a valid session.

    :param name: of the attack, in a few words; unique in its table.
    :param sender: and *recipient*: principals of *policy*.
    :param message: as the sender puts it on the wire; payloads are rows of the codec.
    :param rule: of the refusal; None where the message is admitted since the promise was deleted.
    :param policy: the name of a ready policy, or the text of one.
    :param asked: the request of the recipient that *message* answers, if it is an answer.
    """

    name: str
    sender: str
    recipient: str
    message: Any
    rule: str | None
    policy: str = "dask-cluster"
    asked: Any = None
