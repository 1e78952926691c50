"""Definitions that hold no code: a listed function by its name, a value as typed data.

The one rule: such a definition says by its first byte what it is, and opening it unpickles nothing.
A task calls a reference and is given values; a reference is never given to a function. Under
``submission: approved`` an author signs nothing else; see :func:`require_signable`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from safeser.allowed import refusal
from safeser.dask.contents.unlisted_functions import RULE, name_of, unlisted
from safeser.dask.sealed.definitions import Definitions
from safeser.errors import PayloadError, PolicyDenied, SerializationError
from safeser.pickles.live import Live
from safeser.pickles.names import shown
from safeser.pickles.stock import load_code
from safeser.policy.signable import Signable
from safeser.serialization import deserialize_bytes, serialize_bytes
from safeser.values import Limits

__all__ = ["ListedDefinitions", "load_definition", "require_signable", "stands"]

#: First bytes. A pickle begins with b"\x80".
_REFERENCE, _VALUE = b"@", b"="

#: Longer than any name that a policy can list.
_LONGEST_NAME = 2048


class ListedDefinitions(Definitions):
    """The definitions of a graph of listed functions while its author writes it out.

    :param functions: names that the author's context lists.
    :param context: the policy's name for that context, for errors.
    """

    def __init__(self, functions: frozenset[str], context: str, limits: Limits) -> None:
        super().__init__()
        self._functions = functions
        self._context = context
        self._limits = limits
        self._called: dict[int, tuple[Any, bytes]] = {}

    def add(self, obj: Any) -> bytes:
        """Return the digest of *obj* as typed data.

        :raises PayloadError: if no typed family carries it.
        """
        return self._added(obj, self._value)

    def add_function(self, function: Any) -> bytes:
        """Return the digest of the name of *function*.

        :raises PolicyDenied: if the author's context does not list it.
        """
        known = self._called.get(id(function))
        if known is None:
            known = self._called[id(function)] = function, self._named(function)
        return known[1]

    def _value(self, obj: Any) -> bytes:
        try:
            return _VALUE + serialize_bytes(obj, limits=self._limits)
        except SerializationError as error:
            raise PayloadError(
                error.message,
                rule=RULE,
                where=error.where,
                fix="Approved tasks take numbers, text, arrays, frames and results of other tasks;"
                " functions are called and never handed over.",
            ) from error

    def _named(self, function: Any) -> bytes:
        name = name_of(function, self._context)
        if name not in self._functions:
            raise unlisted(function, name, self._context)
        return self._kept(function, _REFERENCE + name.encode())


def stands(definition: bytes, called: bool) -> bool:
    """Tell whether *definition* may stand where a task calls it, or where none does."""
    return definition[:1] != (_VALUE if called else _REFERENCE)


def load_definition(definition: bytes) -> Any:
    """Return the object that *definition* names, if its author may sign it.

    Typed data is copied: arrays of two tasks share no memory.

    :raises PayloadError: if typed data is malformed, or a function cannot be found here.
    :raises PolicyDenied: if a name leads to an object of another name.
    """
    kind = definition[:1]
    if kind == _REFERENCE:
        return Live(_name(definition), allowed="reference").found
    if kind == _VALUE:
        return deserialize_bytes(bytearray(memoryview(definition)[1:]))
    return load_code(definition)


def require_signable(definitions: Iterable[bytes], may: Signable) -> None:
    """Refuse *definitions* that their author may not sign.

    :raises PolicyDenied: naming the function that policy does not list, or saying that it is code.
    """
    if may.code:
        return
    for definition in definitions:
        kind = definition[:1]
        if kind == _VALUE:
            continue
        if kind != _REFERENCE:
            raise PolicyDenied(
                "a signed task holds code, and its author may submit listed functions at most",
                rule=RULE,
                fix="Submit it with a safeser.Client that has the same policy, or ask the operator"
                " for 'submission: sealed'.",
            )
        name = _name(definition)
        if name not in may.functions:
            raise PolicyDenied(
                f"a signed task calls {shown(name)}, which its author's context with the scheduler"
                " does not list",
                rule=RULE,
                where=shown(name),
                fix=_advice(name),
            )


def _advice(name: str) -> str:
    why = refusal(name, "reference", approved=True)
    if why:
        return f"No operator can allow it: {why}."
    return (
        f"The operator can allow it there: 'pickle: {{allow: {{\"{shown(name)}\": reference}}}}'."
    )


def _name(definition: bytes) -> str:
    try:
        name = definition[1:].decode() if len(definition) <= _LONGEST_NAME else ""
    except UnicodeDecodeError:
        name = ""
    module, _, qualname = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *qualname.split("."))):
        raise PayloadError("a reference names no function", rule="sealed.task")
    return name
