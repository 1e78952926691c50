"""Verifies many records of a chain that nothing is wrong with, in one loop.

The one rule: what this takes, :mod:`safeser.audit.scan` would take as well. Where a line is not the
record that follows, the loop ends before it, and the scan says what the line is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from safeser.audit.chain import STEP, keyed
from safeser.audit.record import MAX_INT, MAX_LINE

__all__ = ["Verified", "verified_start"]

_BODY_AT = len('{"mac":"') + 64 + len('","record":')


class Verified(NamedTuple):
    """Records that verified, one after the other.

    :param count: how many.
    :param mac: of the last.
    :param first: the earliest of their times, and *last* the latest, and *time* that of the last.
    """

    count: int
    mac: bytes
    first: int
    last: int
    time: int


def verified_start(key: bytes, sequence: int, previous: bytes, raws: Sequence[bytes]) -> Verified:
    """Verify *raws* from the first on, as far as each is the record that follows the one before.

    :param key: of the chain.
    :param sequence: number of the record that the first is to be, after the MAC *previous*.
    """
    inner_start, outer_start = keyed(key)
    pack = STEP.pack
    start = sequence
    first, last, time = MAX_INT, -1, -1
    for raw in raws:
        body = raw[_BODY_AT:-1]
        inner, outer = inner_start.copy(), outer_start.copy()
        inner.update(pack(3, 32, previous, 8, sequence, len(body)) + body)
        outer.update(inner.digest())
        mac = outer.digest()
        # MACs in the files are not secret, so the time of the comparison reveals nothing.
        head = b'{"mac":"%b","record":' % mac.hex().encode("ascii")
        if raw[:_BODY_AT] != head or raw[-1:] != b"}" or len(raw) > MAX_LINE:
            break
        # A quotation mark inside a JSON string has a backslash before it: neither is found there.
        at = body.rfind(b',"time":') + 8
        digits = body[at : at + 16]
        if b',"seq":%d,' % sequence not in body or not digits.isdigit():
            break
        if body[at + 16 : at + 17] not in _ENDS or digits[:1] == b"0":
            break
        time = int(digits)
        first, last = (time if time < first else first), (time if time > last else last)
        previous = mac
        sequence += 1
    return Verified(sequence - start, previous, first, last, time)


_ENDS = (b",", b"}")
