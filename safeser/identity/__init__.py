"""Identities of principals, and the roster that lists the public keys of each principal."""

from safeser.identity.edit import RosterFile
from safeser.identity.identities import Identity, PrivateKey, PublicKey
from safeser.identity.material import KeepsSecrets
from safeser.identity.roster import KeyState, Roster, RosterEntry, today
from safeser.identity.signing import SigningKey, VerifyingKey

__all__ = [
    "Identity",
    "KeepsSecrets",
    "KeyState",
    "PrivateKey",
    "PublicKey",
    "Roster",
    "RosterEntry",
    "RosterFile",
    "SigningKey",
    "VerifyingKey",
    "today",
]
