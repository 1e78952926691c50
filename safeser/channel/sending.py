"""Decide what this side of a connection may send: operations, and families for values.

The one rule: a value leaves by a family that policy grants, and a pickle only if the receiver would
accept it, since a refused value would be requested again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from safeser import families as serialization
from safeser.channel.records import Recording
from safeser.errors import SafeserError
from safeser.families.registered.own import before_typed
from safeser.pickles.advice import NEVER
from safeser.values import SEALED, Context, Described, Grant

__all__ = ["FLOOR", "Sending", "is_asked_for", "is_own_reply", "ordered"]


#: Families that need no grant of their own: they cannot reach code and carry no types of a library.
FLOOR = ("msgpack", "error")


@lru_cache(maxsize=256)
def ordered(families: tuple[str, ...]) -> tuple[str, ...]:
    """Return in which order to try *families*.

    The order is the policy's, but families without code come before pickles: a value that they can
    carry needs none. Of these dask is first, since it leaves large buffers uncopied and packs plain
    values as msgpack does. Families of one's own that the policy lists before dask are asked before
    it, for values that dask would carry too, but not for errors.
    """
    own = before_typed(families)
    ordered = [*(["error", *own] if own else ()), *(["dask"] if "dask" in families else ())]
    ordered += [family for family in FLOOR if family not in ordered]
    # The writer of family cloudpickle tries plain pickle itself, except for classes of __main__,
    # which must not go by name alone to a process that has another __main__.
    skipped = {"pickle"} if "cloudpickle" in families else set()
    return (*ordered, *(f for f in families if f not in ordered and f not in skipped))


def is_asked_for(family: str, families: Sequence[str]) -> bool:
    """Tell whether a caller's list covers *family*; Dask's ``pickle`` includes cloudpickle."""
    if family in FLOOR or family in families:
        return True
    return family == "cloudpickle" and "pickle" in families


class Sending(Recording):
    """The sending half of one authenticated connection; a base of :class:`Link`."""

    def permit_operation(self, context: Context) -> None:
        """Raise :class:`PolicyDenied` unless this side may ask for *context*'s operation."""
        self.require_open(context)
        decision = self.channel.policy.decide(context, "msgpack", sealing=True)
        if not decision.permitted:
            self.refuse(context, decision.rule, decision.reason, fix=decision.fix)

    def allowed(self, context: Context, serializers: Sequence[str] | None = None) -> Grant:
        """Return the grant for sending in *context*, narrowed to *serializers*."""
        self.permit_operation(context)
        grant = self.channel.policy.grant(context, sealing=True)
        if serializers is None:
            return grant
        return grant.narrowed([f for f in grant.families if is_asked_for(f, serializers)])

    def serialize(
        self,
        obj: Any,
        grant: Grant,
        *,
        iterate_collection: bool | None = None,
        context: Context | None = None,
        unregistered: bool = False,
    ) -> tuple[dict[str, Any], list[Any]]:
        """Turn *obj* into a header and frames by the first granted family that can.

        :param context: passed to registered functions that take it.
        :param unregistered: whether to write classes that only the reader may have registered.
        """
        return serialization.serialize(
            obj,
            ordered(grant.families),
            limits=self.channel.policy.limits,
            iterate_collection=iterate_collection,
            context=context,
            types=grant.types,
            reads=grant if unregistered else None,
        )

    def permit_sending(self, context: Context, payload: Described) -> None:
        """Raise :class:`PolicyDenied` unless *payload* may leave in *context*."""
        self.require_open(context)
        if is_own_reply(context, payload, self.peer):
            return  # it returns to the principal that signed it
        author = None if payload.author == self.local else payload.author
        decision = self.channel.policy.decide(context, payload.family, sealing=True, author=author)
        if not decision.permitted:
            self.refuse(context, decision.rule, decision.reason, payload=payload, fix=decision.fix)
        if payload.family == "pickle":
            self._judge_own(context, payload)

    def _judge_own(self, context: Context, payload: Described) -> None:
        """Refuse a pickle that the receiver would refuse and then request again."""
        grant = self.channel.policy.grant(context, sealing=True)
        frames = list(payload.frames)
        try:
            serialization.judge(payload.header, frames, grant, limits=self.channel.policy.limits)
        except SafeserError as error:
            otherwise = f" Or else: {error.fix}" if not error.fix.startswith(NEVER) else ""
            self.refuse(
                context,
                error.rule,
                f"the value takes a pickle that the other side refuses: {error.message}",
                payload=payload,
                fix="Convert it to numbers, text, arrays or frames, which need no pickle."
                f"{otherwise}",
            )


def is_own_reply(context: Context, payload: Described, principal: str) -> bool:
    """Tell whether *payload* is a task that *principal* signed, and the reply to its request.

    A payload among others in a reply, such as a plugin for a worker that registers, is not one.
    """
    signed = payload.family == SEALED and payload.author == principal
    return signed and context.operation is None and payload.where == ""
