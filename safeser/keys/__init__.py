"""X25519 identities of principals, and the roster that says which public key speaks for whom."""

from safeser.keys.edit import RosterFile
from safeser.keys.identity import Identity, KeepsSecrets, PrivateKey, PublicKey
from safeser.keys.roster import KeyState, Roster, RosterEntry, today

__all__ = [
    "Identity",
    "KeepsSecrets",
    "KeyState",
    "PrivateKey",
    "PublicKey",
    "Roster",
    "RosterEntry",
    "RosterFile",
    "today",
]
