"""Which entries of an index the present key vouches for, though a key that moved made them.

The one rule: a process acts on no other entry. The record that moves the key states a digest of
the entries before it, and a tag on that digest which the next key makes. Without a key an
attacker can change an entry, and not the tag; a holder of the next key finds the entry changed.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from safeser.audit.chain_file import ChainFile
from safeser.audit.key import AuditKey, index_keys, registry_tag
from safeser.audit.record import MAX_LINE, Record, extends, parse, split
from safeser.errors import AuditError
from safeser.gate.chain import ZERO, Head, Keys
from safeser.gate.event import encode

if TYPE_CHECKING:
    from safeser.audit.index import Entries

__all__ = ["Vouched", "mac_of", "verified", "vouched", "vouching"]

_CHUNK = 64 << 10
# A quotation mark inside a JSON string has a backslash before it: no text of an entry has this.
_MOVE = b'"type":"key"'


class Vouched(NamedTuple):
    """The entries that a key vouches for.

    :param first: number of the first of them: 0, unless an older release moved the key before.
    :param digest: of those from the first up to number *number*.
    :param raws: the lines from number *number* to the end of the index.
    """

    first: int
    digest: bytes
    number: int
    raws: list[bytes]


def vouching(
    chain: ChainFile[None], key: AuditKey, following: AuditKey, now: int
) -> dict[str, object]:
    """Return the fields by which *following* vouches for what *key* vouches for until *now*."""
    found = vouched(chain, key)
    digest = found.digest
    for raw in found.raws:
        digest = hashlib.sha256(digest + raw + b"\n").digest()
    end = chain.end
    tag = registry_tag(
        following, directory=end.file, first=found.first, count=end.count, digest=digest, time=now
    )
    return {"digest": digest.hex(), "first": found.first, "tag": tag.hex()}


def vouched(chain: ChainFile[None], key: AuditKey) -> Vouched:
    """Return what *key* vouches for, the entries verified that were added since it moved.

    :raises AuditError: if they do not verify.
    """
    end = chain.end
    keys = index_keys(key, directory=end.file)
    if not key.moves:
        raws = chain.read_from(0).split(b"\n")[:-1]
        list(_chained(chain, raws, keys, Head(end.file, 0, ZERO, 0)))
        return Vouched(0, ZERO, 0, raws)
    raws = _since_move(chain)
    number = end.count - len(raws)
    moved = split(raws[0]) if raws else None
    if moved is None:
        raise _changed(chain)
    # The MAC of this record is the one that the next begins from; its fields are those that the tag
    # covers, and no others.
    list(_chained(chain, raws[1:], keys, Head(end.file, number + 1, moved[0], 0)))
    record = _parsed(chain, raws[0])
    if record.type != "key":  # it would be vouched for from here on, as what it says
        raise _changed(chain)
    if "tag" not in record.fields:  # of an older release
        return Vouched(number + 1, ZERO, number + 1, raws[1:])
    first, digest = record.number("first"), mac_of(record.text("digest"))
    if not 0 <= first <= number:
        raise _changed(chain)
    time = record.time
    tag = registry_tag(key, directory=end.file, first=first, count=number, digest=digest, time=time)
    whole = {
        "digest": digest.hex(),
        "first": first,
        "moves": key.moves,
        "seq": number,
        "tag": tag.hex(),
        "time": time,
        "type": "key",
    }
    # Whatever else it said, later keys would vouch for: the digest is one of whole lines.
    if not hmac.compare_digest(encode(whole), moved[1]):
        raise _changed(chain)
    return Vouched(first, digest, number, raws)


def verified(entries: Entries) -> Iterator[Record]:
    """Yield the entries that the present key vouches for, in their order.

    What was yielded holds once the last was: an entry that does not verify is known at the end.

    :raises AuditError: if one was changed.
    """
    chain, end = entries.chain, entries.chain.end
    if not entries.moves:
        keys = index_keys(entries.key, directory=end.file)
        yield from _chained(chain, _lines(chain), keys, Head(end.file, 0, ZERO, 0))
        return
    found = vouched(chain, entries.key)
    digest = ZERO
    for number, raw in enumerate(_lines(chain)):
        if number == found.number:
            break
        if number >= found.first:
            # The length of the first part is fixed.
            digest = hashlib.sha256(digest + raw + b"\n").digest()
            yield _parsed(chain, raw)
    if digest != found.digest:
        raise _changed(chain)
    for raw in found.raws:
        yield _parsed(chain, raw)


def _chained(
    chain: ChainFile[None], raws: Iterable[bytes], keys: Keys, at: Head
) -> Iterator[Record]:
    """Yield the records that *raws* are, which follow *at* and end where the index does."""
    for raw in raws:
        following = extends(raw, keys, at)
        if following is None:
            raise _changed(chain)
        at = following
        yield _parsed(chain, raw)
    if (at.count, at.mac) != (chain.end.count, chain.end.mac):
        raise _changed(chain)


def _since_move(chain: ChainFile[None]) -> list[bytes]:
    """Return the lines from the last record on that moved the key."""
    size = chain.end.size
    length = _CHUNK
    while True:
        start = max(0, size - length)
        data = chain.read_from(start)
        at = data.rfind(_MOVE)
        before = data.rfind(b"\n", 0, max(at, 0))
        if at >= 0 and (before >= 0 or not start):
            return data[before + 1 :].split(b"\n")[:-1]
        if not start:
            return []
        length *= 4


def _lines(chain: ChainFile[None]) -> Iterator[bytes]:
    read, buffer = chain.reader(), b""
    while chunk := read(_CHUNK):
        *whole, buffer = (buffer + chunk).split(b"\n")
        yield from whole
        if len(buffer) > MAX_LINE:
            raise _changed(chain)


def _parsed(chain: ChainFile[None], raw: bytes) -> Record:
    try:
        return parse(raw)
    except AuditError:
        raise _changed(chain) from None


def mac_of(text: str) -> bytes:
    """Return the MAC that *text* spells; of anything else the empty one, which no record has.

    Another process that holds the key may write what it likes: it verifies, and is none the less
    only text.
    """
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def _changed(chain: ChainFile[None]) -> AuditError:
    return AuditError(
        "the index was changed; no file is begun, compressed or removed by what it says",
        rule="audit.tampered",
        where=chain.directory.path,
        fix="Verify the log, and keep it for the investigation.",
    )
