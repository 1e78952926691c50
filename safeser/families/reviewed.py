"""Call the reviewed constructors of restricted pickle with the checked values of typed headers.

The one rule: the function that was reviewed for pickles is called, never copied, so that one check
protects a library's compiled code from both encodings.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from safeser.errors import PayloadError
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles import Budget
from safeser.pickles.shims.site import Site

__all__ = ["reviewed", "site"]


def site(node: Node, limits: Limits, budget: Budget) -> Site:
    """Return what reviewed constructors need for all parts of *node*; call it once for a node.

    They are charged to the *budget* of the message, to which the node's bytes bring their share.
    Each frame belongs to one node, so nothing else in the payload writes to what was checked.
    """
    return Site(limits, given=_given_to(node), budget=budget, shared=False)


def _given_to(node: Node) -> int:
    """Return how many bytes arrived for *node*."""
    given, todo, package = 0, [node], _package(node)
    while todo:
        inner = todo.pop()
        given += sum(frame.nbytes for frame in inner.frames)
        # Those of the same package have their own; walking them at each level would be quadratic.
        todo.extend(child for child in inner.children if _package(child) != package)
    return given


def _package(node: Node) -> str:
    return node.type.partition(":")[0].partition(".")[0]


@contextmanager
def reviewed(node: Node) -> Iterator[None]:
    """Turn a refusal by a reviewed constructor into one that names *node*.

    What a value may be has one rule in either spelling; what a pickle may say has rules of its own.
    """
    try:
        yield
    except PayloadError as error:
        room, _, rule = error.rule.partition(".")
        raise PayloadError(
            error.message,
            rule=f"families.{rule}" if room == "pickle" else error.rule,
            where=error.where or node.where,
            fix=error.fix,
        ) from None
    # The library itself may refuse what the review left to it; its text may hold the values.
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise PayloadError(
            f"a value of type {node.type} cannot be built ({type(error).__name__})",
            rule="families.build",
            where=node.where,
        ) from None
