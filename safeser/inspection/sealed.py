"""Describe the prelude of a sealed message in a file, without verification.

The one rule: the key exists only in the message's session, so the content is not examined, and
every statement of the prelude is a claim.
"""

from __future__ import annotations

from safeser.errors import PayloadError
from safeser.gate.format import MAGIC, PRELUDE_SIZE, parse_prelude
from safeser.inspection.examination import Examination
from safeser.inspection.source import cut_off

__all__ = ["ENVELOPE_START", "read_envelope"]

ENVELOPE_START = MAGIC


def read_envelope(seen: Examination) -> None:
    """Show the sizes that a message claims, and end without a verdict."""
    seen.is_a("envelope", "a sealed message, not verified", loader="")
    source = seen.source
    prelude = parse_prelude(source.read(0, min(source.size, PRELUDE_SIZE)), seen.limits)
    seen.add("prelude", f"sequence {prelude.sequence}, tag not verified", 0, PRELUDE_SIZE)
    at = PRELUDE_SIZE
    for name, size in (("block", prelude.block), ("other parts", prelude.rest)):
        if size:
            seen.add(name, "encrypted, not verified", at, size)
        at += size
    if at > source.size:
        raise cut_off("the message is cut off", source.size)
    if at < source.size:
        seen.add("behind it", "not read", at, source.size - at)
    raise PayloadError(
        "a sealed message can be verified only within its session, whose keys are gone:"
        " its content cannot be examined",
        rule="inspect.not-verified",
        fix="Look at what the receiver's audit log says of it.",
    )
