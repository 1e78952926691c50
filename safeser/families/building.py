"""Build objects from the checked nodes of a payload.

The one rule: it builds only nodes that :mod:`safeser.families.receiving` judged and checked,
children before their parents, and calls only listed constructors and the host's registered
functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from safeser.errors import PayloadError, SafeserError
from safeser.families import pickled, plain
from safeser.families.errors import wire as errors
from safeser.families.errors.unsent import unsent
from safeser.families.keys import table_of
from safeser.families.registered import hosted
from safeser.families.registered.own import own_families
from safeser.families.registry import Typed
from safeser.families.tree import PICKLES, Node
from safeser.gate.values import FAMILIES, Context, Grant, Limits
from safeser.pickles import Budget
from safeser.trace.probe import Done, is_traced, size_of, watch

__all__ = ["built"]


def built(
    nodes: Sequence[Node],
    grant: Grant,
    limits: Limits,
    *,
    typed: Mapping[str, Typed],
    budget: Budget,
    context: Context | Mapping[str, Any] | None,
) -> Any:
    """Return the object of *nodes*, which are checked and list each parent before its children.

    :param typed: the types of the nodes of family dask, by name.
    :param budget: shared by all payloads of one message.
    :param context: passed to registered functions that take it.
    :raises PolicyDenied: for a global in a pickle that *grant* does not permit.
    :raises PayloadError: for a value that cannot be built.
    """

    def run() -> Any:
        if len(nodes) == 1 and nodes[0].serializer == "dask":  # as most payloads
            (node,) = nodes
            kind = typed[node.type]
            words = hosted.words_of(context) if kind.contextual else None
            return _decoded(node, kind, [], words, budget)
        if any(node.serializer not in FAMILIES for node in nodes):
            own_families.look_for(grant.families)
        builder = _Builder(grant, limits, budget, typed, hosted.words_of(context))
        for node in reversed(nodes):
            node.value = builder.build(node)
        return nodes[0].value

    if not is_traced():
        return run()
    size = sum(size_of(node.frames) for node in nodes)
    family = nodes[0].serializer
    return watch("deserialize", run, lambda made: Done(made, family, size))


@dataclass(slots=True)
class _Builder:
    """Builds checked nodes, children before their parents.

    :param typed: the types of the nodes of family dask, by name.
    :param context: passed to registered functions that take it.
    """

    grant: Grant
    limits: Limits
    budget: Budget
    typed: Mapping[str, Typed]
    context: dict[str, Any] | None

    def build(self, node: Node) -> Any:
        if node.serializer == "msgpack":
            return self.plain(node)
        if node.serializer == "error":
            return self.failure(node)
        if node.serializer in PICKLES:
            return pickled.decode(node, self.grant, self.limits, self.budget)
        values = [child.value for child in node.children]
        for child in node.children:
            child.value = None
        if node.serializer == "dask":
            return _decoded(node, self.typed[node.type], values, self.context, self.budget)
        # Errors of functions that the host registered keep their cause, for the host to mend.
        hosts = node.serializer != "collection"
        try:
            return self.own(node) if hosts else _collect(node, values)
        except SafeserError:
            raise
        # As for typed values.
        except Exception as error:
            raise _unbuildable(node, error, chained=hosts) from (error if hosts else None)

    def plain(self, node: Node) -> Any:
        """Return a plain value, decoded again if its copy was dropped."""
        if node.value is None:
            room = self.limits.max_memory  # it was counted
            return plain.decode_counted(
                node.frames[0], limits=self.limits, room=room, depth=node.depth
            )[0]
        return node.value

    def failure(self, node: Node) -> Any:
        if node.value is None:
            node.value = errors.decode(node.frames[0], limits=self.limits)
        said = errors.from_data(node.value, own=node.own)
        if not node.meta["failed"]:
            return said
        raise unsent(
            "the sender could not serialize the value",
            said if isinstance(said, SafeserError) else "",
            rule="families.sender-failed",
            where=node.where,
        )

    def own(self, node: Node) -> Any:
        """Call the family that the host registered; its name is in the grant, which was checked."""
        family = own_families.find(node.serializer)
        if family is None or family.loads is None:
            node.refuse(f"family {node.serializer} can only be written here", "families.serializer")
        header = {**node.meta, "serializer": family.name}
        return hosted.load(
            family.loads,
            header,
            node.frames,
            context=self.context,
            contextual=family.loads_context,
            views=family.views,
            limits=self.limits,
        )


def _decoded(
    node: Node,
    typed: Typed,
    values: list[Any],
    context: dict[str, Any] | None,
    budget: Budget | None,
) -> Any:
    """Decode a checked node by *typed*, given the values of its children."""
    try:
        if typed.budgeted:
            return typed.decode(node, values, budget)
        if typed.contextual:
            return typed.decode(node, values, context)
        return typed.decode(node, values)
    except SafeserError as error:
        error.where = error.where or node.where
        raise
    # Any exception of a listed constructor, or of a comparison of keys, means that a peer's values
    # make no such object; its text may hold the values and stays out of the error. Errors of
    # functions that the host registered keep their cause, since the host can mend them.
    except Exception as error:
        chained = typed.contextual
        raise _unbuildable(node, error, chained=chained) from (error if chained else None)


def _unbuildable(node: Node, error: Exception, *, chained: bool) -> PayloadError:
    return PayloadError(
        f"a value of type {node.type or node.serializer} cannot be built ({type(error).__name__})",
        rule="families.build",
        where=node.where,
        fix="The cause is chained to this error." if chained else "",
    )


def _collect(node: Node, values: list[Any]) -> Any:
    if node.type == "list":
        return values
    if node.type == "tuple":
        return tuple(values)
    if node.type == "dict":
        return table_of(values[0], values[1:], where=node.where)
    made = table_of(values, where=node.where)
    return made if node.type == "set" else frozenset(made)
