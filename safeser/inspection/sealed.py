"""Describe the prelude of a sealed message in a file, without verification.

The one rule: the key exists only in the message's session, so the content is not examined, and
every statement of the prelude is a claim.
"""

from __future__ import annotations

from safeser.envelope.format import MAGIC, PRELUDE_SIZE, parse_prelude, parse_start
from safeser.errors import PayloadError
from safeser.inspection.examination import Examination
from safeser.inspection.source import cut_off
from safeser.values import Suite

__all__ = ["ENVELOPE_START", "read_envelope"]

ENVELOPE_START = MAGIC


def read_envelope(seen: Examination) -> None:
    """Show the sizes that a message claims, and end without a verdict."""
    seen.is_a("envelope", "a sealed message, not verified", loader="")
    # The prelude does not say its suite: take the one that the file's size fits.
    source = seen.source
    data = source.read(0, min(source.size, PRELUDE_SIZE))
    read = [parse_prelude(data, seen.limits, suite) for suite in Suite]
    prelude = next((each for each in read if each.message_length == source.size), read[0])
    seen.add("prelude", f"sequence {prelude.sequence}, tag not verified", 0, PRELUDE_SIZE)
    header = prelude.header_length + prelude.overhead.header
    seen.add("header", "not verified, not read", PRELUDE_SIZE, header)
    at = PRELUDE_SIZE + prelude.start_length
    start = parse_start(prelude, seen.source.read(PRELUDE_SIZE, prelude.start_length))
    if prelude.message_length > seen.source.size:
        raise cut_off("the message is cut off", seen.source.size)
    for number, length in enumerate(start.sealed_lengths):
        seen.add(f"frame {number}", "not verified, not read", at, length)
        at += length
    at += prelude.overhead.end
    if at < seen.source.size:
        seen.add("behind it", "not read", at, seen.source.size - at)
    raise PayloadError(
        "a sealed message can be verified only within its session, whose keys are gone:"
        " its content cannot be examined",
        rule="inspect.not-verified",
        fix="Look at what the receiver's audit log says of it.",
    )
