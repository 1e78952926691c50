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
from safeser.tokens.kinds import describe, describe_dict_in_order, use_loaded_libraries
from safeser.tokens.references import class_name
from safeser.tracebacks import for_callers

__all__ = ["Tokenizer", "tokenize", "tokenize_by", "tokenize_in_order"]

#: Another canonical form has another domain, so that its tokens never meet these.
_DOMAIN = b"safeser.tokenize 1"
_ORDERED_DOMAIN = b"safeser.tokenize in order 1"
#: How much of a key or of a long way an error shows.
_SHOWN = 40
_SHOWN_STEPS = 8
#: Objects that one walk remembers before another one begins: they take some 20 MB.
_MOST_NODES = 50_000


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
    tokenizer = Tokenizer(_describe_in_order, _ORDERED_DOMAIN, in_order=True)
    return tokenizer.token(obj, ensure_deterministic=ensure_deterministic)


def _describe_in_order(value: Any) -> Form:
    return describe_dict_in_order(value) if type(value) is dict else describe(value)


def tokenize_by(
    described: Callable[[Any], Form],
    domain: bytes,
    obj: Any,
    *,
    ensure_deterministic: bool,
) -> str:
    """Return the token of *obj* by another canonical form.

    :param described: returns what an object is made of.
    :param domain: names the form, so that its tokens never meet those of others.
    :param ensure_deterministic: raise for what has no token, or another one each time.
    """
    strictly = {"ensure_deterministic": ensure_deterministic}
    token = Tokenizer(described, domain).token(obj, **strictly)
    if ensure_deterministic and token != Tokenizer(described, domain).token(obj, **strictly):
        raise TokenizationError(
            f"An object of type {_name(type(obj))}, or one in it, has another state each time that"
            " it is pickled, so that no token of it would be the same twice",
            fix="Have its __getstate__ or __reduce__ return what its meaning depends on, or"
            " tokenize without ensure_deterministic=True.",
        )
    return token


class Tokenizer:
    """Gives tokens of several objects that do not change meanwhile; what they share counts once.

    :param described: returns what an object is made of.
    :param domain: as for :func:`tokenize_by`.
    :param in_order: whether the order of dictionaries counts; *described* sees to those that are
        not plain.
    """

    def __init__(
        self, described: Callable[[Any], Form], domain: bytes, *, in_order: bool = False
    ) -> None:
        use_loaded_libraries()
        self._domain = domain
        self._described = described
        self._leaves = ORDERED_LEAVES if in_order else LEAVES
        self._walk = Walk(described, self._leaves)

    def token(self, obj: Any, *, ensure_deterministic: bool) -> str:
        """Return the token of *obj*.

        :raises TokenizationError: as :func:`tokenize` does.
        """
        if len(self._walk) > _MOST_NODES:
            self._walk = Walk(self._described, self._leaves)
        encoding = self._walk.encode(obj)
        if self._walk.undetermined:
            found = self._walk.find_cause(obj)
            if found is not None:
                self._walk = Walk(self._described, self._leaves)  # it may have ended half way
                if ensure_deterministic:
                    raise _error(*found)
                return secrets.token_hex(32)
        return sha256(pack((self._domain, encoding))).hexdigest()


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
