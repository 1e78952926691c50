"""``tokenize``: one token for all equal objects, in all processes of one environment.

The one rule: a token that cannot be kept is never given out as one. It is random, or an error that
names what is in the way.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

from safeser.errors import TokenizationError
from safeser.tokens.encoding import LEAVES, ORDERED_LEAVES, pack
from safeser.tokens.graph import Form, Group, Node, Walk
from safeser.tokens.kinds import describe, use_loaded_libraries
from safeser.tokens.references import class_name
from safeser.tracebacks import for_callers

__all__ = ["tokenize", "tokenize_by", "tokenize_in_order"]

#: Another canonical form has another domain, so that its tokens never meet these.
_DOMAIN = b"safeser.tokenize 1"
_ORDERED_DOMAIN = b"safeser.tokenize in order 1"
#: How much of a key or of a long way an error shows.
_SHOWN = 40
_SHOWN_STEPS = 8


@for_callers
def tokenize(obj: Any, *, ensure_deterministic: bool = False) -> str:
    """Return a token of *obj*: 64 hexadecimal digits that stand for its content.

    Equal objects of one type have equal tokens, as have copies by pickle, cloudpickle and deepcopy;
    so does the same definition in another process with the same minor version of Python and the
    same libraries. SHA-256 over a typed, length-prefixed form: objects that differ get different
    tokens, also if an attacker chose them.

    What has no such form (locks, open files, generators, ``object()``) gets a new random token with
    each call.

    :param ensure_deterministic: raise instead of returning a random token.
    :raises TokenizationError: says which part of *obj* has no canonical form.
    """
    return tokenize_by(describe, _DOMAIN, obj, ensure_deterministic=ensure_deterministic)


def tokenize_in_order(obj: Any, *, ensure_deterministic: bool = False) -> str:
    """Return a token as :func:`tokenize` does, for which the order of dictionaries counts.

    A task that gets a dictionary sees its order, which is that of a frame's columns.
    """
    return tokenize_by(
        describe, _ORDERED_DOMAIN, obj, ensure_deterministic=ensure_deterministic, in_order=True
    )


def _in_order(described: Callable[[Any], Form]) -> Callable[[Any], Form]:
    def described_in_order(value: Any) -> Form:
        form = described(value)
        return form._replace(group=Group.ORDERED) if type(value) is dict else form

    return described_in_order


def tokenize_by(
    described: Callable[[Any], Form],
    domain: bytes,
    obj: Any,
    *,
    ensure_deterministic: bool,
    in_order: bool = False,
) -> str:
    """Return the token of *obj* by another canonical form.

    :param described: returns what an object is made of.
    :param domain: names the form, so that its tokens never meet those of others.
    :param in_order: whether the order of dictionaries counts.
    """
    use_loaded_libraries()
    walk = Walk(_in_order(described), ORDERED_LEAVES) if in_order else Walk(described, LEAVES)
    encoding = walk.encode(obj)
    if walk.undetermined:
        found = walk.find_cause(obj)
        if found is not None:
            if ensure_deterministic:
                raise _error(*found)
            return secrets.token_hex(32)
    return sha256(pack((domain, encoding))).hexdigest()


def _error(node: Node, way: Sequence[tuple[Node, int]]) -> TokenizationError:
    return TokenizationError(
        f"An object of type {_name(type(node.value))} {node.reason}, so that no token of it would"
        " be the same in another process",
        where=_where(way),
        fix="Leave it out of the object, define __dask_tokenize__ or __reduce__ in its class,"
        " or tokenize without ensure_deterministic=True.",
    )


def _name(cls: type) -> str:
    return ".".join(str(each)[:_SHOWN] for each in class_name(cls))


def _where(way: Sequence[tuple[Node, int]]) -> str:
    steps = [_step(node, at) for node, at in way]
    if len(steps) > _SHOWN_STEPS:
        half = _SHOWN_STEPS // 2
        steps = [*steps[:half], "...", *steps[-half:]]
    return " → ".join(["the object", *steps])


def _step(node: Node, at: int) -> str:
    form = node.form
    if form.steps:
        return f"{form.steps[at]} of {_name(type(node.value))}"
    if form.group is Group.PAIRS:
        key = form.values[at - at % 2]
        shown = f"key {key[:_SHOWN]!r}" if type(key) is str else f"entry {at // 2}"
        return f"the key of {shown}" if at % 2 == 0 else shown
    return "a member" if form.group is Group.MEMBERS else f"item {at}"
