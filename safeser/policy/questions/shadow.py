"""Ask what a shadow policy would have refused of what the enforced policy permits.

The one rule: the answer is recorded and does nothing else. It is :meth:`Policy.decide` of the
shadow, with the same facts by which the enforced policy decided.
"""

from __future__ import annotations

from safeser.policy.policy import Policy
from safeser.values import Context

__all__ = ["PERMIT", "shadow_rule"]

PERMIT = "permit"


def shadow_rule(
    shadow: Policy | None, context: Context, family: str = "msgpack", author: str | None = None
) -> str:
    """Return the rule by which *shadow* refuses *family* in *context*; empty if it does not."""
    if shadow is None:
        return ""
    decision = shadow.decide(context, family, author=author)
    return "" if decision.permitted else decision.rule
