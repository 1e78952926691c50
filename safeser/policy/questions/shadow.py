"""Ask what a shadow policy would have refused of what the enforced policy permits.

The one rule: the answer is recorded and does nothing else. It is :meth:`Policy.decide` of the
shadow, with the same facts by which the enforced policy decided.
"""

from __future__ import annotations

from dataclasses import replace

from safeser.errors import SafeserError
from safeser.gate.values import ELEMENT, Context, Limits
from safeser.policy.policy import Policy

__all__ = ["PERMIT", "UNREAD", "Allowance", "shadow_rule"]

PERMIT = "permit"

#: The rule for a pickle that would take too long to read for a shadow alone.
UNREAD = "shadow.unread"

#: Elements of pickles that are read for a shadow, of one message: some forty milliseconds. Bytes of
#: text and buffers cost little, and are bounded apart.
_ELEMENTS = 1 << 14
_BYTES = 1 << 20

#: Rules by which a pickle with more elements than it may have is refused.
_LARGER = frozenset({"pickle.max-memory", "pickle.opcodes"})


class Allowance:
    """How much of one message's pickles may still be read for a shadow."""

    __slots__ = ("_left",)

    def __init__(self) -> None:
        self._left = _ELEMENTS

    def limits(self, nbytes: int, limits: Limits) -> Limits | None:
        """Return the budget for reading the pickles of *nbytes*; None if they may not be read.

        A pickle has no more elements than bytes, so that small ones are read whole.
        """
        if nbytes > _BYTES or not self._left:
            return None
        most = min(nbytes, self._left)
        self._left -= most
        return replace(limits, max_memory=max(ELEMENT, min(limits.max_memory, most * ELEMENT)))

    @staticmethod
    def rule(error: SafeserError, nbytes: int, limits: Limits) -> str:
        """Return the rule to record for *error*, raised while a pickle was read within *limits*."""
        return UNREAD if error.rule in _LARGER and limits.elements < nbytes else error.rule


def shadow_rule(
    shadow: Policy | None, context: Context, family: str = "msgpack", author: str | None = None
) -> str:
    """Return the rule by which *shadow* refuses *family* in *context*; empty if it does not."""
    if shadow is None:
        return ""
    decision = shadow.decide(context, family, author=author)
    return "" if decision.permitted else decision.rule
