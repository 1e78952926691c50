"""The errors that the gate raises, and how a message shows names that a peer chose.

An error says what was refused, by which rule of which policy on which process, and what to change.
``str()`` is its one text, the same in tracebacks, logs, replies and ``policy explain``. It never
carries payload bytes, key material or the text of a hostile object: peers, logs and tracebacks see
these messages. A name loses its middle, since both of its ends tell it from others; what a message
tells its reader to write is never shortened.

:mod:`safeser.errors` is the whole tree, and the name under which programs import it.
"""

from __future__ import annotations

from typing import Self

#: Characters of a name that a message shows, where its caller says nothing else.
_SHOWN = 80


def shortened(name: str, most: int = _SHOWN) -> str:
    """Return *name* in at most *most* characters, with dots in place of its middle."""
    if len(name) <= most:
        return name
    end = (most - 3) // 2
    return f"{name[: most - 3 - end]}...{name[-end:]}"


def on_one_line(text: str) -> str:
    """Return *text* without line breaks and without what would control a terminal.

    No part of a message may pass for another part of it.
    """
    line = " ".join(str.splitlines(text))
    return line if line.isprintable() else "".join(c if c.isprintable() else "?" for c in line)


def legible(name: str, most: int = _SHOWN) -> str:
    """Return a peer's *name* shortened, without what would control a terminal.

    For names inside of a message, whose other characters :func:`on_one_line` replaces as a whole.
    """
    return "".join(filter(str.isprintable, shortened(name, most)))


class SafeserError(Exception):
    """Base of everything that safeser refuses or cannot do.

    :param message: one plain sentence that names what was refused.
    :param rule: stable, dotted identifier of the rule that refused, e.g. ``"payload.array"``.
    :param where: place inside the message, file or policy, e.g. ``"line 3, column 5"``.
    :param fix: what the reader can change, or the empty string.
    :param policy: name and revision of the policy that decided, as ``"demo revision 3"``; empty
        where no policy did. :meth:`decided_by` adds it, and the next one, where they are known.
    :param process: principal of the process that refused.
    """

    default_rule = "safeser"

    #: Whether the audit log has this refusal already; who records it sets this.
    recorded = False

    #: Whether a log has its text already: of this process, or of the one that refused.
    logged = False

    #: The operation of a message that was refused as a whole, before any payload was decided.
    operation = ""

    #: The global of a pickle that is refused, for the log.
    subject = ""

    #: The limit that was exceeded, by its name in a policy; empty where it was none of these.
    limit = ""

    def __init__(
        self,
        message: str,
        *,
        rule: str = "",
        where: str = "",
        fix: str = "",
        policy: str = "",
        process: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.rule = rule or self.default_rule
        self.where = where
        self.fix = fix
        self.policy = policy
        self.process = process

    def __str__(self) -> str:
        """Return what was refused, the rule with policy and process, and the fix, a line each."""
        place = f", at {self.where}" if self.where and self.where not in self.message else ""
        policy = f" of policy {self.policy}" if self.policy else ""
        process = f", on {self.process}" if self.process else ""
        parts = (f"{self.message}{place}", f"rule: {self.rule}{policy}{process}")
        fix = (f"fix: {self.fix}",) if self.fix else ()
        return "\n  ".join(map(on_one_line, parts + fix))

    def decided_by(self, policy: str, process: str) -> Self:
        """State where this error was decided, unless it says so already, and return it.

        :param policy: empty where the error is of no policy.
        """
        if not self.process:
            self.policy = self.policy or policy
            self.process = process
        return self

    def without_frames(self) -> Self:
        """Drop the stack frames that this error refers to, and return it.

        Those hold the refused message in their local variables, and the exception that an error
        replaces may hold its bytes (``msgpack.ExtraData``). A user's variable, a log handler or a
        cycle that keeps the error would keep them, too.
        """
        for error in (self, self.__cause__):
            if error is not None:
                error.__traceback__ = None
                error.__context__ = None
        if self.__cause__ is not None:
            self.__cause__.__cause__ = None
        return self

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments need a state of their own, or a copy would lose the rule.
        return (
            type(self),
            (self.message,),
            {name: getattr(self, name) for name in _STATE},
        )


#: The attributes that copies of an error keep, beside its message.
_STATE = ("rule", "where", "fix", "policy", "process")


class ConfigError(SafeserError):
    """A key, policy, roster or setting is missing or wrong; nothing was started."""

    default_rule = "config"

    #: Further faults of the same file, which its author can mend at once.
    others: tuple[ConfigError, ...] = ()

    @property
    def faults(self) -> tuple[ConfigError, ...]:
        """This error and those beside it, in the order of the file."""
        return (self, *self.others)

    def __str__(self) -> str:
        return "\n".join(each.line for each in self.faults)

    @property
    def line(self) -> str:
        """This fault alone, on one line, as compilers print theirs."""
        where = f" at {self.where}" if self.where else ""
        fix = f" {self.fix}" if self.fix else ""
        return on_one_line(f"{self.message}{where} [{self.rule}]{fix}")

    def __reduce__(self) -> tuple[object, ...]:
        cls, args, state = super().__reduce__()
        return cls, args, {**state, "others": self.others} if self.others else state  # type: ignore[dict-item]  # the state of the base


class EnvelopeError(SafeserError):
    """Bytes on a connection are not what the envelope allows; the session is over."""

    default_rule = "envelope"


class AuthenticationError(EnvelopeError):
    """The peer did not prove its principal. Deliberately opaque: it does not name the check."""

    default_rule = "authentication"


class PolicyDenied(SafeserError):
    """Policy does not let this sender hand this recipient this kind, operation or family."""

    default_rule = "policy"


class PayloadError(SafeserError):
    """A payload or message is malformed, or asks for something that no policy can allow."""

    default_rule = "payload"


class AuditError(SafeserError):
    """The audit log could not be written, or does not verify."""

    default_rule = "audit"
