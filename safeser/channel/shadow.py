"""Judge what was permitted by the shadow policy too, and note in its records what that refuses.

The one rule: it is asked after the enforced policy permitted, and only its answer is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from safeser import families as serialization
from safeser.channel.admitted import Received
from safeser.channel.records import is_own_reply
from safeser.errors import SafeserError
from safeser.gate.values import SEALED, Context
from safeser.policy import Policy
from safeser.policy.questions.shadow import UNREAD, Allowance, shadow_rule

__all__ = ["note_shadow"]

#: Families whose names a shadow may judge otherwise than the enforced policy.
_PICKLES = frozenset({"pickle", "cloudpickle"})


def note_shadow(
    shadow: Policy,
    context: Context,
    payloads: Sequence[Received],
    events: Sequence[dict[str, Any]],
    *,
    peer: str,
    local: str,
    allowance: Allowance,
) -> None:
    """Add to *events*, the records of *payloads*, the rules by which *shadow* refuses them.

    :param allowance: what may be read for the shadow, shared by all elements of one message.
    """
    for made, payload in zip(events, payloads, strict=True):
        if payload.family == SEALED and is_own_reply(context, payload, local):
            continue
        author = None if payload.author == peer else payload.author
        rule = shadow_rule(shadow, context, payload.family, author)
        if payload.family in _PICKLES and payload.grant is not None:
            rule = _pickle_rule(shadow, context, payload, rule, allowance, peer=peer)
        if rule:
            made["shadow_rule"] = rule


def _pickle_rule(
    shadow: Policy,
    context: Context,
    payload: Received,
    rule: str,
    allowance: Allowance,
    *,
    peer: str,
) -> str:
    """Return the rule by which *shadow* refuses a pickle, which it may take for another family.

    Where the enforced policy grants code, the pickle was not read, and counts as code.
    """
    author = None if payload.author == peer else payload.author
    if payload.family == "cloudpickle" and (
        not rule or shadow_rule(shadow, context, "pickle", author)
    ):
        return rule
    if payload.family == "pickle" and rule:
        return rule
    grant = shadow.bound(context).written_by(payload.author, sender=peer)
    enforced = payload.grant
    if enforced is not None and payload.family == "pickle":
        names = (enforced.profiles, enforced.allow)
        if names == (grant.profiles, grant.allow):
            return ""  # judged by these very names already
    size = payload.nbytes
    limits = allowance.limits(size, shadow.limits)
    if limits is None:
        return UNREAD
    try:
        # Values beside the pickle, and its shape, have the limits of the policy.
        serialization.judge(
            payload.header,
            payload.frames,
            grant,
            limits=shadow.limits,
            budget=serialization.Budget(limits),
            declared=shadow.families,
        )
    except SafeserError as error:
        return allowance.rule(error, size, limits)
    return ""
