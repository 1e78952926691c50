"""Sentences about keys and rosters."""

from safeser.identity import Roster
from tests.sentences.sentence import Sentence

ROWS = [
    Sentence(
        "config.roster",
        lambda: Roster.parse("ed25519:AAAA alice active 2026-01-01\n"),
        "that is not a public key; one is 'x25519:' and 43 letters, digits, '-' or '_'",
    ),
]
