"""Represent a peer's exception as data, and as RemoteError where its class is not rebuilt.

The one rule: programs print the text of a peer's failure, so it must not control a terminal. The
constructor escapes every character that is not plain text, a line break or a tab.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MAX_MESSAGE", "STATE", "ExceptionData", "RemoteError", "shown"]

#: A screen or two.
MAX_MESSAGE = 10_000

#: What an error of safeser says beside its message.
STATE = ("rule", "where", "fix", "policy", "process")


#: What steers a terminal, or a viewer of text, first and last of each range: control characters of
#: ASCII and Latin-1 but for tab and line break, marks and overrides of writing direction, line ends
#: that only some viewers know, and halves of characters that no output takes.
_STEERING = (
    (0x00, 0x08),
    (0x0B, 0x1F),
    (0x7F, 0x9F),
    (0x061C, 0x061C),
    (0x200E, 0x200F),
    (0x2028, 0x202E),
    (0x2066, 0x2069),
    (0xD800, 0xDFFF),
)

#: A table rather than a function for each: a hostile text may hold nothing else.
_ESCAPES = {
    code: ascii(chr(code))[1:-1] for first, last in _STEERING for code in range(first, last + 1)
}
_ANY = re.compile("[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _STEERING) + "]")


def shown(text: str) -> str:
    """Return *text* with escapes in place of whatever could steer a terminal."""
    return text.translate(_ESCAPES) if _ANY.search(text) else text


class RemoteError(Exception):
    """A failure on another process, of a class that is not rebuilt here.

    :ivar remote_type: the class's ``module:qualname``, as the other process wrote it; empty where
        not even that could be read.
    """

    def __init__(self, text: str = "", *, remote_type: str = "") -> None:
        super().__init__(text)
        self.remote_type = remote_type

    def __str__(self) -> str:
        text = str(self.args[0]) if self.args else ""
        return f"{self.remote_type}: {text}" if self.remote_type else text

    def __reduce__(self) -> tuple[object, ...]:
        # remote_type is keyword-only: copies need it as state.
        return (type(self), self.args, {**self.__dict__, "remote_type": self.remote_type})


@dataclass(frozen=True, slots=True)
class ExceptionData:
    """An exception as data, which is sent in its place.

    :param type: ``module:qualname`` of its class.
    :param message: what ``str()`` said, cut.
    :param args: what its class is called with if all of it is plain and small; else None.
    :param traceback: the formatted traceback, cut at its beginning.
    :param notes: what was added with ``add_note``.
    :param cause: what it was raised from.
    :param context: what was being handled when it was raised; often the cause itself.
    :param suppress: whether the context is not to be shown, as after ``raise ... from None``.
    :param members: the exceptions in a group.
    :param fields: plain attributes that were set on it.
    :param state: fields of a safeser error: rule, where, fix, policy and process.
    """

    type: str
    message: str
    args: tuple[Any, ...] | None = None
    traceback: str = ""
    notes: tuple[str, ...] = ()
    cause: ExceptionData | None = None
    context: ExceptionData | None = None
    suppress: bool = False
    members: tuple[ExceptionData, ...] = ()
    fields: dict[str, Any] = field(default_factory=dict)
    state: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Regardless of origin. Arguments are kept; from_data escapes those that would be printed.
        for name in ("type", "message", "traceback"):
            object.__setattr__(self, name, shown(getattr(self, name)))
        for name in ("notes", "state"):
            object.__setattr__(self, name, tuple(map(shown, getattr(self, name))))

    def linked(self) -> list[ExceptionData]:
        """Return the failures that this one refers to directly."""
        chained = [link for link in (self.cause, self.context) if link is not None]
        return [*chained, *self.members]
