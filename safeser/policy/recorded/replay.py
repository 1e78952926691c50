"""Ask what a policy would have refused of what audit logs say was permitted.

The one rule: each answer is that of :class:`Policy` about a recorded message, by the questions that
its sender and its recipient ask where the policy is enforced. What they decide by more than policy
and message is named in :data:`NOT_REPLAYED`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from safeser.gate.decision import COMPUTE, SUBMITTING
from safeser.gate.values import SEALED, Decision, Kind
from safeser.policy.policy import Policy
from safeser.policy.questions.readable import readable, reads_all, runs_code
from safeser.policy.questions.roles import REGISTERING
from safeser.policy.recorded.traffic import Message, Seen, Traffic
from safeser.policy.rules import HANDING

__all__ = ["NOT_REPLAYED", "Refusal", "as_json", "leading", "replay"]

#: What may refuse a message, and no log says enough about to ask for it again.
NOT_REPLAYED = (
    "limits",
    "key conflicts",
    "names within pickles",
    "which task of another a request is about",
)

#: Requests that change the values of a worker.
_CHANGING = frozenset({"update_data", "gather", "free_keys"})

#: What processes ask beside :meth:`Policy.decide`, and what a policy lacks that refuses it.
_BESIDE = {
    "values.author": "{author} is not listed under 'values' of {sender}",
    "sealed.author": "no context lets {author} submit sealed calls to {sender}",
    "sealed.required": "the task is not signed, as a safeser.Client would have done",
    "values.direct": "{sender} may not read the values of every author; leave out direct=True",
    "key.direct": "{sender} may not run code in {recipient}; leave out direct=True",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Messages of one sort that the policy refuses.

    :param message: what they were.
    :param decision: the decision on them.
    :param same_host: None, or where the policy permits them otherwise: whether it refuses them only
        between ends on one machine (True), or on two (False).
    """

    message: Message
    seen: Seen
    decision: Decision
    same_host: bool | None = None


def replay(policy: Policy, traffic: Traffic) -> list[Refusal]:
    """Return what *policy* refuses of *traffic*, by rule and principal, the most frequent first."""
    found, leads = [], leading(traffic)
    workers = {
        each.recipient if each.operation == COMPUTE else each.sender
        for each in traffic.messages
        if each.operation in (COMPUTE, "register-worker")
    }
    for message, seen in traffic.messages.items():
        direct = message.recipient in workers and message.sender not in {*leads, message.recipient}
        asked = leads if direct and not message.reads else None
        denials = {near: _denial(policy, message, near, asked) for near in (True, False)}
        refused = [near for near, denial in denials.items() if denial is not None]
        if refused:
            denial = denials[refused[0]]
            assert denial is not None
            only = refused[0] if len(refused) == 1 else None
            found.append(Refusal(message, seen, denial, only))
    by_rule: dict[str, int] = {}
    for each in found:
        by_rule[each.decision.rule] = by_rule.get(each.decision.rule, 0) + each.seen.times
    return sorted(
        found,
        key=lambda each: (
            -by_rule[each.decision.rule],
            each.decision.rule,
            each.message.sender,
            each.message.recipient,
            -each.seen.times,
            str(each.message),
        ),
    )


def leading(traffic: Traffic) -> frozenset[str]:
    """Return the schedulers in *traffic*: with them others register, and to them they submit."""
    names = REGISTERING.keys() | SUBMITTING
    return frozenset(each.recipient for each in traffic.messages if each.operation in names)


def _denial(
    policy: Policy, message: Message, near: bool, leads: Collection[str] | None
) -> Decision | None:
    """Return the first refusal that *message* meets where *policy* is enforced, or None.

    :param near: whether both ends are on one machine.
    :param leads: the schedulers, if another than they and the worker itself asks a worker.
    """
    sender, recipient, _, operation, family, author, *_ = message
    context = message.context(same_host=near)
    for answer in () if message.reads else _decisions(policy, message, near):
        if not answer.permitted:
            return answer
    handed = Kind.TASK if operation in HANDING else Kind.CONTROL
    refused = {
        "values.author": message.reads and author not in readable(policy, context),
        "sealed.author": family == SEALED
        and author is not None
        and not policy.may_sign(author, sender, handed),
        "sealed.required": operation == COMPUTE
        and family not in (SEALED, "error")
        and policy.bound(context).submission == SEALED,
        "values.direct": leads is not None
        and operation == "get_data"
        and not reads_all(policy, context),
        "key.direct": leads is not None
        and operation in _CHANGING
        and not runs_code(policy, replace(context, kind=Kind.DATA), leads),
    }
    rule = next((rule for rule, holds in refused.items() if holds), None)
    if rule is None:
        return None
    found = policy.match(context)
    reason = _BESIDE[rule].format(sender=sender, recipient=recipient, author=author)
    name = "" if found is None else found.name
    return Decision(False, rule, reason, context=name, fix=f"In context {name!r}: {reason}.")


def _decisions(policy: Policy, message: Message, near: bool) -> Iterator[Decision]:
    """Yield the decisions on *message*: on its operation, which is msgpack, and on its payload."""
    sides = [(message, False)]
    # The sender asks about plain elements of streams and plain replies nothing.
    if message.is_request or message.family != "msgpack":
        sides.append((message, True))
    for each, sealing in (*sides, *((half, True) for half in message.halves())):
        context = each.context(same_host=near)
        yield policy.decide(context, "msgpack", sealing=sealing)
        yield policy.decide(context, each.family, sealing=sealing, author=each.author)


def as_json(policy: Policy, traffic: Traffic, refusals: list[Refusal]) -> Mapping[str, Any]:
    """Return the answer as plain values, for programs."""
    return {
        "policy": {"name": policy.name, "revision": policy.revision, "sha256": policy.sha256},
        "messages": traffic.times,
        "skipped": traffic.skipped,
        "not_replayed": NOT_REPLAYED,
        "refused": [
            {
                **each.message._asdict(),
                "kind": each.message.kind.value,
                "rule": each.decision.rule,
                "context": each.decision.context,
                "same_host": each.same_host,
                "times": each.seen.times,
                "first": each.seen.first,
                "last": each.seen.last,
                "example": {} if each.seen.example is None else each.seen.example._asdict(),
                "fix": each.decision.fix,
            }
            for each in refusals
        ],
    }
