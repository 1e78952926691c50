"""A sealed message in a file: what its prelude says, which nobody has verified.

The one rule: without its session there is no key, so nothing in it is looked into and nothing that
is said of it is more than a claim.
"""

from __future__ import annotations

from safeser.envelope.format import MAGIC, PRELUDE_SIZE, Prelude, parse_lengths, parse_prelude
from safeser.errors import PayloadError
from safeser.inspection.examination import Examination
from safeser.inspection.source import cut_off

__all__ = ["ENVELOPE_START", "read_envelope"]

ENVELOPE_START = MAGIC


def read_envelope(seen: Examination) -> None:
    """Show the sizes that a message claims, and end without a verdict."""
    seen.is_a("envelope", "a sealed message, not verified", loader="")
    source, limits = seen.source, seen.limits
    prelude = parse_prelude(source.read(0, min(source.size, PRELUDE_SIZE)), limits)
    seen.add("prelude", f"sequence {prelude.sequence}, tag not verified", 0, PRELUDE_SIZE)
    seen.add("header", "not verified, not read", PRELUDE_SIZE, prelude.header_length)
    _add_frames(seen, prelude)
    raise PayloadError(
        "a sealed message means something only within its session, whose keys are gone:"
        " nothing can be said of what it holds",
        rule="inspect.not-verified",
        fix="Look at what the receiver's audit log says of it.",
    )


def _add_frames(seen: Examination, prelude: Prelude) -> None:
    table_at = PRELUDE_SIZE + prelude.header_length
    at = table_at + prelude.table_length
    lengths = parse_lengths(prelude, seen.source.read(table_at, prelude.table_length))
    if prelude.message_length > seen.source.size:
        raise cut_off("the message is cut off", seen.source.size)
    for number, length in enumerate(lengths):
        seen.add(f"frame {number}", "not verified, not read", at, length)
        at += length
    if at < seen.source.size:
        seen.add("behind it", "not read", at, seen.source.size - at)
