"""Families ``pickle`` and ``cloudpickle``: encode and decode pickles by safeser.pickles.

The one rule: safeser.pickles alone reads a pickle, under the profiles of one grant, and the content
of a pickle decides what it is.
"""

from __future__ import annotations

from typing import Any

from safeser import pickles
from safeser.allowed import Allowed
from safeser.errors import PayloadError, PolicyDenied
from safeser.families.tree import Node
from safeser.gate.values import Grant, Limits
from safeser.pickles.stock import load_code

__all__ = ["decode", "encode", "family_of", "judge"]

# Pickles that are parsed to find their families are kept until they are loaded, which may wait for
# a record to be written: the first so many elements of a message, of some 200 bytes each.
_KEPT_REFS = 100_000


def encode(
    x: object, family: str, *, reads: Grant | None = None, limits: Limits
) -> tuple[dict[str, Any], list[Any]]:
    """Return *x* pickled, its buffers as frames of their own; propagates pickling errors.

    :param reads: what the reader takes; what it would refuse is refused here.
    """
    buffers: list[memoryview] = []

    def keep(buffer: Any) -> None:
        buffers.append(buffer.raw())

    data = pickles.dumps(x, buffer_callback=keep, code=family == "cloudpickle")
    if reads is not None:
        parsed = pickles.parse(
            data, buffers=len(buffers), limits=limits, budget=pickles.Budget(limits)
        )
        profile = pickles.Profile.granted(reads.profiles, reads.allow)
        parsed.judged(profile, buffers=len(buffers))
    writeable = [not buffer.readonly for buffer in buffers]
    return {"serializer": family, "writeable": writeable}, [data, *buffers]


def family_of(
    node: Node,
    limits: Limits,
    budget: pickles.Budget,
    *,
    allow: tuple[Allowed, ...] = (),
    denials: list[PolicyDenied] | None = None,
) -> str:
    """Return ``"pickle"`` or ``"cloudpickle"``, from the globals that the pickle needs.

    :param budget: what parsing may take.
    :param allow: globals that policy lets family ``pickle`` use beyond all profiles.
    :param denials: gets the refusal that names what makes it code, if anything does.
    """
    if node.value is None:
        known = pickles.Profile.granted(pickles.DATA_PROFILES, allow)
        parsed = pickles.parse(node.frames[0], limits=limits, budget=budget)
        node.value = parsed.family(known, denials)
        if node.value == "pickle" and limits.elements - budget.refs <= _KEPT_REFS:
            node.parsed = parsed
    return str(node.value)


#: What cloudpickle makes functions and classes with that it does not write by name.
_BY_VALUE = "cloudpickle.cloudpickle:"
_CODE_FIX = (
    "Send data in its place, such as numbers, text, arrays or frames, or name a function of an"
    " installed module. Only family cloudpickle, for a sender who is granted code, carries code;"
    " such a sender can run anything."
)


def as_code(denial: PolicyDenied, refused: str, *, where: str) -> PolicyDenied:
    """Return the error for a pickle that is code: which global makes it so, and where it is."""
    by_value = denial.subject.startswith(_BY_VALUE)
    denied = PolicyDenied(
        f"{refused}: it holds a function or class by its code"
        if by_value
        else f"{refused}: {denial.message} at {denial.where}, which makes it code",
        rule="context.family",
        where=where,
        fix=_CODE_FIX if by_value else denial.fix,
    )
    denied.subject = denial.subject
    return denied


def decode(node: Node, grant: Grant, limits: Limits, budget: pickles.Budget) -> Any:
    """Load a pickle by the family that was found for it, which *grant* lists."""
    data = node.frames[0]
    buffers = [
        _with_flag(buffer, writeable)
        for buffer, writeable in zip(node.frames[1:], node.meta["writeable"], strict=True)
    ]
    if node.value != "cloudpickle":
        return judge(node, grant, limits, budget).build(buffers, budget)
    code = bytes(data)
    try:
        return load_code(code, buffers=buffers)
    # Granted code may raise anything. Its sender may already run code here, so the cause is kept
    # and names, for example, the missing module.
    except Exception as error:
        raise PayloadError(
            f"loading code that was granted failed with {type(error).__name__}",
            rule="families.build",
            fix="The cause is chained to this error; often a module is not installed here.",
        ) from error


def judge(node: Node, grant: Grant, limits: Limits, budget: pickles.Budget) -> pickles.Judged:
    """Return the pickle of *node*, judged by the profiles of *grant*, before anything is built.

    The *budget* is charged.
    """
    buffers, parsed = len(node.frames) - 1, node.parsed
    if parsed is None:
        parsed = pickles.parse(node.frames[0], buffers=buffers, limits=limits, budget=budget)
    else:
        parsed.charge(budget)
    profile = pickles.Profile.granted(grant.profiles, grant.allow)
    return parsed.judged(profile, buffers=buffers)


def _with_flag(buffer: memoryview, writeable: bool) -> memoryview:
    if writeable and buffer.readonly:
        return memoryview(bytearray(buffer))
    return buffer if writeable else buffer.toreadonly()
