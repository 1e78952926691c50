"""The authenticated envelope: which principal is at the other end, and which bytes it sent.

The one rule: no I/O. Callers move the bytes; this package says how many to read, what to write, and
whether they are authentic. ``docs/reference/envelope-v1.md`` is the normative description.
"""

from safeser.envelope import canonical
from safeser.envelope.claims import CLAIMS_SIZE, Claims
from safeser.envelope.format import (
    MAX_FRAME,
    PRELUDE_SIZE,
    Buffer,
    Prelude,
    Sealed,
    Start,
    byte_count,
)
from safeser.envelope.handshake import Handshake, SuiteRefused, preamble
from safeser.envelope.noise import HandshakeRefused
from safeser.envelope.parts import check_payload, join, runs, split, too_large
from safeser.envelope.session import MAX_SECONDS, MAX_SESSION_BYTES, Arrival, Session, Verified

__all__ = [
    "CLAIMS_SIZE",
    "MAX_FRAME",
    "MAX_SECONDS",
    "MAX_SESSION_BYTES",
    "PRELUDE_SIZE",
    "Arrival",
    "Buffer",
    "Claims",
    "Handshake",
    "HandshakeRefused",
    "Prelude",
    "Sealed",
    "Session",
    "Start",
    "SuiteRefused",
    "Verified",
    "byte_count",
    "canonical",
    "check_payload",
    "join",
    "preamble",
    "runs",
    "split",
    "too_large",
]
