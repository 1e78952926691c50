"""What one allowed name may be used for: roles, fields, and what runs when it is loaded.

The one rule: an :class:`Allowed` that exists has a legal name and says nothing contradictory, so
it need not be checked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from safeser.allowed.names import check_allowed, shown
from safeser.errors import ConfigError
from safeser.gate.values import check_global

__all__ = ["ALLOWED_ROLES", "Allowed"]

#: What an allowed global may be used for; see :class:`Allowed`.
ALLOWED_ROLES = ("class", "callable", "enum", "constant", "reference")


# Methods of an allowed class that a load runs only where ``trust`` lists them, by their field.
_TRUSTED = {"__hash__": "hashable", "__setstate__": "setstate"}


@dataclass(frozen=True, slots=True)
class Allowed:
    """One global that family ``pickle`` may use beyond its profiles, and what for.

    The operator who allows a ``class`` vouches for its ``__new__``, ``__init__``, ``__hash__``,
    ``__eq__`` and ``__del__`` for any arguments and fields that a sender chooses.

    :param name: exact ``module:qualname``.
    :param role: one of :data:`ALLOWED_ROLES`.
    :param fields: attributes that a pickle may set; None for any that is no dunder and no method.
    :param hashable: instances may be dict keys and set members.
    :param kwargs: keyword arguments that its ``__new__`` may be given.
    :param grows: ``"list"`` or ``"dict"`` where it is such a container and may be filled.
    :param returns: exact class of what a ``callable`` makes, as ``module:qualname``.
    :param setstate: its own ``__setstate__`` is called with what the sender wrote.
    """

    name: str
    role: str
    fields: tuple[str, ...] | None = None
    hashable: bool = False
    kwargs: tuple[str, ...] = ()
    grows: str = ""
    returns: str = ""
    setstate: bool = False

    def __post_init__(self) -> None:
        check_global(self.name)
        if self.role not in ALLOWED_ROLES:
            self._refuse(f"has a role that is none of {', '.join(ALLOWED_ROLES)}")
        check_allowed(self.name, self.role, setstate=self.setstate is True)
        for name in (*(self.fields or ()), *self.kwargs):
            if type(name) is not str or not name.isidentifier() or name.startswith("__"):
                self._refuse("names a field that is no plain attribute")
        if self.grows not in ("", "list", "dict"):
            self._refuse("can grow like a list or a dict only")
        if type(self.hashable) is not bool or type(self.setstate) is not bool:
            self._refuse("says neither true nor false where one of them is due")
        if self.role != "class" and (self.setstate or self.fields is not None):
            self._refuse(f"is a {self.role}, and those take no fields")
        if self.role not in ("class", "callable") and (self.kwargs or self.grows):
            self._refuse(f"is a {self.role}, and those take no keywords or contents")
        self._check_returns()

    def _check_returns(self) -> None:
        if self.role != "callable":
            if self.returns:
                self._refuse("returns itself: 'returns' is for callables")
            return
        if not self.returns:
            self._refuse("is a callable, which must say what it 'returns'")
        check_global(self.returns)

    def _refuse(self, problem: str) -> NoReturn:
        raise ConfigError(f"{shown(str(self.name))} {problem}", rule="config.allow")

    @classmethod
    def of(cls, name: str, spec: str | Mapping[str, Any] | Allowed) -> Allowed:
        """Return what ``name: role`` or ``name: {role: ..., fields: [...]}`` spells.

        ``trust: [__hash__, __setstate__]`` stands for ``hashable`` and ``setstate``: the policy
        language has no booleans.

        :raises ConfigError: if it is not a name, or has a role or field that means nothing here.
        """
        if isinstance(spec, Allowed):
            return spec
        if not isinstance(spec, Mapping):
            spec = {"role": spec}
        spelled: dict[str, Any] = dict(spec)
        known = ("role", "fields", "kwargs", "grows", "returns", "trust")
        if not spelled.keys() <= {*known, "hashable", "setstate"} or "role" not in spelled:
            raise ConfigError(
                f"what is allowed is a role, or a mapping of {', '.join(known)}",
                rule="config.allow",
            )
        for field_name in ("fields", "kwargs", "trust"):
            value = spelled.get(field_name, ())
            if not isinstance(value, list | tuple | set | frozenset):
                raise ConfigError(f"{field_name!r} must be a list of names", rule="config.allow")
            if field_name in spelled:
                spelled[field_name] = tuple(value)
        for method in spelled.pop("trust", ()):
            if not isinstance(method, str) or method not in _TRUSTED:
                raise ConfigError(f"'trust' may list {' and '.join(_TRUSTED)}", rule="config.allow")
            spelled[_TRUSTED[method]] = True
        return cls(name, **spelled)

    @classmethod
    def each(cls, name: str, spec: Any) -> tuple[Allowed, ...]:
        """Return what *spec* spells for *name*: one of what :meth:`of` takes, or a list of them.

        A class that is made and also handed over needs two: ``[class, reference]``.

        :raises ConfigError: as :meth:`of` does, and for a list that is empty or repeats a role.
        """
        if not isinstance(spec, list | tuple):
            return (cls.of(name, spec),)
        several = tuple(cls.of(name, single) for single in spec)
        if not several or len({allowed.role for allowed in several}) < len(several):
            raise ConfigError("a list of roles names each once", rule="config.allow")
        return several
