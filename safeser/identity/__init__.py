"""Identities of principals, and the roster that lists the public keys of each principal."""

from safeser.identity.identities import Identity
from safeser.identity.roster import KeyState, Roster, RosterEntry, today
from safeser.identity.signing import SigningKey, VerifyingKey

__all__ = [
    "Identity",
    "KeyState",
    "Roster",
    "RosterEntry",
    "SigningKey",
    "VerifyingKey",
    "today",
]
