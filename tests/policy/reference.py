"""The documented rules of decisions as plain loops over a policy file's values: the oracle.

It shares no code with :mod:`safeser.policy`: principals and groups are looked up in the file's text
at every question, and contexts are tried from top to bottom.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from safeser.gate.values import Context
from safeser.operations import GROUPS
from safeser.operations.groups import PARTS

BUILT_IN = ("msgpack", "error", "dask", "pickle", "cloudpickle", "sealed")
DATA = ("msgpack", "error", "dask")  # families that cannot reach code
SUBMITTING = ("update-graph",)
SEALED_IN = (
    *(None, *SUBMITTING, "compute-task", "broadcast", "proxy"),
    *PARTS["worker-run"],
    *PARTS["worker-plugins"],
)

Answer = tuple[bool, str]


def reference(
    policy: dict[str, Any],
    context: Context,
    family: Any,
    sealing: bool,
    author: str | None,
    *,
    day: str = "",
) -> Answer:
    """Return whether *policy* permits the message on *day*, and by which rule."""
    sender, recipient = known(policy, context.sender), known(policy, context.recipient)
    rule = first(policy, context)
    if rule is None:
        return False, "context.none"
    if "until" in rule and day > rule["until"]:
        return False, "context.ended"
    granted: set[str] = set()
    for name in rule.get("operations", {}).get("grant", []):
        granted |= GROUPS.get(name) or PARTS.get(name) or {name}
    submission, operation = rule.get("submission", "none"), context.operation
    if operation is not None and operation not in granted:
        return False, "operation.not-granted"
    if operation in SUBMITTING and submission == "none":
        return False, "submission.none"
    if context.kind.value == "admin" and family != "msgpack":
        return False, "floor.admin"
    exists = family in BUILT_IN or family in policy.get("families", [])
    if exists and family not in DATA and "unknown" in (sender, recipient):
        return False, "floor.unknown"
    if family == "sealed":
        passes = submission == "sealed" and operation in SEALED_IN
    else:
        listed = rule.get("serializers" if sealing else "deserializers", ["msgpack"])
        passes = exists and ("msgpack" if family == "error" else family) in listed
    if not passes:
        return False, "context.family"
    return _by_author(policy, rule, context, family, author, hands_out="compute-task" in granted)


def _by_author(
    policy: dict[str, Any],
    rule: dict[str, Any],
    context: Context,
    family: str,
    author: str | None,
    *,
    hands_out: bool,
) -> Answer:
    relayed = author is not None and author != context.sender
    by = known(policy, author if relayed else context.sender)
    # A scheduler's own signature counts for nothing where tasks are handed out.
    listed_only = (
        family == "sealed"
        and context.operation not in SUBMITTING
        and (hands_out or bool(rule.get("authors")))
    )
    if family in DATA or not (relayed or listed_only) or names(policy, rule.get("authors"), by):
        return True, "permit"
    # A program's own family, from whom this context takes it itself, wherever that one is.
    if family in policy.get("families", []) and by != "unknown":
        itself = [replace(context, sender=by, same_host=near) for near in (True, False, None)]
        if all(first(policy, each) is rule for each in itself):
            return True, "permit"
    return False, "author.relayed"


def first(policy: dict[str, Any], context: Context) -> dict[str, Any] | None:
    """Return the first context of the file that matches."""
    for rule in policy["contexts"]:
        if (
            names(policy, rule["sender"], known(policy, context.sender))
            and names(policy, rule["recipient"], known(policy, context.recipient))
            and ("kinds" not in rule or context.kind.value in rule["kinds"])
            and ("transport" not in rule or context.transport in rule["transport"])
            and ("same_host" not in rule or context.same_host is rule["same_host"])
        ):
            found: dict[str, Any] = rule
            return found
    return None


def known(policy: dict[str, Any], name: str) -> str:
    return name if name in policy["principals"] else "unknown"


def names(policy: dict[str, Any], listed: list[str] | None, name: str) -> bool:
    """Tell whether *listed* names the principal, itself or by a group."""
    groups = policy["principals"].get(name, {}).get("groups", [])
    each = listed or []
    return name in each or any(f"group:{group}" in each for group in groups)
