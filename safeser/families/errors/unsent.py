"""Make the error for a value whose sender refused to send it, from what the sender says.

The one rule: the sender's words stay apart from this process's. Its rule, policy and process stand
in brackets behind its message; its fix is shown whole, and says that the sender advises it.
"""

from __future__ import annotations

from safeser.errors import SafeserError, SerializationError
from safeser.gate.refusals import legible, on_one_line

__all__ = ["unsent"]

#: Characters of a sender's message.
_MOST = 500


def unsent(what: str, said: object, *, rule: str, where: str) -> SerializationError:
    """Return the error for a value that did not come.

    :param what: what happened, as ``"worker could not send this value"``.
    :param said: the error or the text that came in its place.
    :param rule: the rule by which this process raises it.
    """
    if not isinstance(said, SafeserError):
        reason = legible(on_one_line(_text(said)), _MOST).rstrip(". ")
        return SerializationError(
            f"{what}{f': {reason}' if reason else ''}", rule=rule, where=where
        )
    place = f", at {said.where}" if said.where else ""
    policy = f" of policy {legible(said.policy)}" if said.policy else ""
    process = f", on {legible(said.process)}" if said.process else ""
    reason = legible(on_one_line(f"{said.message}{place}"), _MOST)
    fix = on_one_line(said.fix)
    return SerializationError(
        f"{what}: {reason} (rule {legible(said.rule)}{policy}{process})",
        rule=rule,
        where=where,
        fix=f"its sender advises: {fix}" if fix else "",
    )


def _text(value: object) -> str:
    """Return the text of *value* if it is an error or a str; other types may have no safe text."""
    if not isinstance(value, str | BaseException):
        return "it gives no reason"
    try:
        return str(value)
    except Exception:  # as str() does for long integers, or the class of an error may
        return type(value).__name__
