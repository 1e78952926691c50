"""The signed statement of a graph: its author, its cluster, and until when it may run.

It is separate from the tasks: one signature covers all of them. Its fields are plain msgpack in one
fixed order. The signature covers the bytes that travel: nothing is encoded again to verify it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgpack

from safeser.dask.sealed.merkle import HASH_SIZE
from safeser.dask.wire.reader import packed
from safeser.errors import ConfigError, PayloadError
from safeser.gate.key_pairs import PublicKey
from safeser.gate.values import check_principal
from safeser.identity import Identity, VerifyingKey

#: What to do where a scheduler alters or moves what someone signed.
ASK_OPERATOR = "If it happens again, ask the operator whether the scheduler's key was stolen."


#: Seconds for which a statement is valid: as long as a computation may take, and what it needs may
#: have to be computed again.
LIFETIME = 7 * 24 * 3600

#: Seconds by which the clocks of two machines may differ.
SKEW = 300

GRAPH_ID_SIZE = 16

#: Tasks of one graph.
MOST_TASKS = 1 << 24

#: What is signed begins with this, so that no signature counts for anything else.
_DOMAIN = b"safeser sealed graph v1\n"

_SIGNATURE_SIZE = 64

#: More than any statement takes with its signature: a principal's name and 300 bytes.
MOST_PACKED = _SIGNATURE_SIZE + 512


@dataclass(frozen=True, slots=True)
class Statement:
    """The statement of an author about a graph.

    :param author: principal that signs.
    :param signer: the author's key, by which the signature is verified.
    :param audience: key of the scheduler that the graph was submitted to.
    :param graph: id of the graph, 16 random bytes.
    :param size: number of its tasks.
    :param root: root of the Merkle tree over its tasks.
    :param issued: when it was signed, in seconds since 1970 (UTC).
    :param expires: when it ends to be valid, in the same.
    """

    author: str
    signer: VerifyingKey
    audience: PublicKey
    graph: bytes
    size: int
    root: bytes
    issued: int
    expires: int

    def signed_by(self, identity: Identity) -> SignedStatement:
        """Return this statement with the signature of *identity*, whose it must be.

        :raises ConfigError: if the identity has no signing key.
        """
        data = self._packed()
        return SignedStatement(self, data, identity.sign(_DOMAIN + data))

    def _packed(self) -> bytes:
        about = [self.author, self.signer.raw, self.audience.raw, self.graph, self.size, self.root]
        return packed([*about, self.issued, self.expires])

    def is_current(self, now: float) -> bool:
        """Tell whether *now* lies between issue and expiry, as far as clocks agree."""
        return self.issued - SKEW <= now < self.expires


@dataclass(frozen=True, slots=True)
class SignedStatement:
    """A statement, the bytes that say it, and a signature that :meth:`verify` checks."""

    statement: Statement
    data: bytes
    signature: bytes

    @property
    def packed(self) -> bytes:
        return self.signature + self.data

    def verify(self) -> bool:
        """Tell whether the key that the statement names made the signature.

        Whose key that is, the roster says.
        """
        return self.statement.signer.verify(self.signature, _DOMAIN + self.data)

    @classmethod
    def parse(cls, packed: bytes) -> SignedStatement:
        """Return the statement that *packed* spells; its signature is not verified yet.

        :raises PayloadError: for anything that :meth:`Statement.signed_by` would not write.
        """
        if not _SIGNATURE_SIZE < len(packed) <= MOST_PACKED:
            raise _malformed("its length")
        signature, data = packed[:_SIGNATURE_SIZE], packed[_SIGNATURE_SIZE:]
        try:
            fields = msgpack.unpackb(data, raw=False, use_list=False)
            statement = _statement(fields)
        except (ValueError, TypeError, ConfigError, msgpack.UnpackException):
            raise _malformed("its form") from None
        if statement._packed() != data:  # one spelling for each statement
            raise _malformed("its spelling")
        return cls(statement, data, signature)


def _statement(fields: Any) -> Statement:
    """Return the statement that *fields* are; raise ValueError or TypeError if they are none."""
    author, signer, audience, graph, size, root, issued, expires = fields
    for each in (size, issued, expires):
        if type(each) is not int or not 0 <= each < 1 << 53:
            raise ValueError
    sized = (
        type(graph) is bytes
        and len(graph) == GRAPH_ID_SIZE
        and type(root) is bytes
        and len(root) == HASH_SIZE
    )
    if not sized or size > MOST_TASKS or type(author) is not str:
        raise ValueError
    if not issued < expires <= issued + LIFETIME:
        raise ValueError
    check_principal(author)
    return Statement(
        author, VerifyingKey(signer), PublicKey(audience), graph, size, root, issued, expires
    )


def _malformed(what: str) -> PayloadError:
    return PayloadError(
        f"the statement of a sealed graph is malformed: {what}", rule="sealed.statement"
    )
