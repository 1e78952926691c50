"""Identities of principals, and the roster that says which public key speaks for whom."""

from safeser.keys.edit import RosterFile
from safeser.keys.identity import Identity, PrivateKey, PublicKey
from safeser.keys.material import KeepsSecrets
from safeser.keys.roster import KeyState, Roster, RosterEntry, today
from safeser.keys.signing import SigningKey, VerifyingKey

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
