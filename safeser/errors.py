"""Every error that safeser raises, in one tree.

:mod:`safeser.gate.refusals` has those that the gate raises, and says what an error states and what
it never carries.
"""

from __future__ import annotations

from safeser.gate import refusals
from safeser.gate.refusals import (
    AuditError,
    AuthenticationError,
    ConfigError,
    EnvelopeError,
    PayloadError,
    PolicyDenied,
    SafeserError,
)

__all__ = [
    "AuditError",
    "AuthenticationError",
    "ConfigError",
    "EnvelopeError",
    "MissingExtraError",
    "PayloadError",
    "PolicyDenied",
    "SafeserError",
    "SerializationError",
    "TokenizationError",
]


class MissingExtraError(ConfigError, AttributeError):
    """A name of safeser needs an extra that is not installed.

    An AttributeError too: ``hasattr``, ``help`` and the like must be able to ask.
    """

    default_rule = "config.extra"


class SerializationError(PayloadError, TypeError):
    """An object cannot be sent by the families that were asked for.

    A TypeError too, which is what Dask's own ``serialize`` raises.
    """


class TokenizationError(SafeserError):
    """An object has no token that another process would give it, too."""

    default_rule = "token.nondeterministic"


# Tracebacks, copies and failures on the wire name an error by the module that programs import.
for _error in vars(refusals).values():
    if isinstance(_error, type):
        _error.__module__ = __name__
