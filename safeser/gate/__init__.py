"""The gate: which principal is at the other end, and which bytes it sealed, in order.

The one rule: no I/O. Callers move the bytes; this package says how many to read, what to write, and
whether they are authentic. ``docs/reference/envelope.md`` is the normative description.
"""

from safeser.gate import canonical
from safeser.gate.claims import CLAIMS_SIZE, Claims
from safeser.gate.format import (
    GCM_TAG_SIZE,
    PRELUDE_SIZE,
    SMALL,
    TAG_SIZE,
    Buffer,
    Prelude,
    all_flat,
    byte_count,
    check_payload,
    cut_at,
    longest_block,
    longest_rest,
    too_large,
)
from safeser.gate.handshake import PREAMBLE, Handshake, OtherVersion
from safeser.gate.noise import HandshakeRefused
from safeser.gate.session import (
    MAX_SECONDS,
    MAX_SESSION_BYTES,
    Arrival,
    Session,
    SessionClosed,
    Verified,
)

__all__ = [
    "CLAIMS_SIZE",
    "GCM_TAG_SIZE",
    "MAX_SECONDS",
    "MAX_SESSION_BYTES",
    "PREAMBLE",
    "PRELUDE_SIZE",
    "SMALL",
    "TAG_SIZE",
    "Arrival",
    "Buffer",
    "Claims",
    "Handshake",
    "HandshakeRefused",
    "OtherVersion",
    "Prelude",
    "Session",
    "SessionClosed",
    "Verified",
    "all_flat",
    "byte_count",
    "canonical",
    "check_payload",
    "cut_at",
    "longest_block",
    "longest_rest",
    "too_large",
]
