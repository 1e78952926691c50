"""Write the vectors of docs/reference/envelope-v1.md: envelope-v1.json, envelope-v1-suite-2.json.

The one rule: no randomness, so that the file changes only when bytes on the wire do. Run it with
``python -m tests.vectors.generate_envelope_v1``; a test compares the file with what it makes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgpack
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from safeser.envelope import CLAIMS_SIZE, Claims, Handshake, Session, preamble
from safeser.envelope.aead import EncryptionKeys, part
from safeser.envelope.noise import HandshakeState
from safeser.envelope.session import INITIATOR_TO_RESPONDER, RESPONDER_TO_INITIATOR, expand
from safeser.identity import Identity, PrivateKey
from safeser.values import Suite
from tests.vectors.library_messages import invalid_library_messages, library_messages

FILES = {
    Suite.AUTHENTICATE: Path(__file__).with_name("envelope-v1.json"),
    Suite.ENCRYPT: Path(__file__).with_name("envelope-v1-suite-2.json"),
}
PURPOSES = {
    Suite.AUTHENTICATE: ("HMAC-SHA256", "AES-256-GMAC"),
    Suite.ENCRYPT: ("HMAC-SHA256", "AES-256-GCM"),
}
POLICY = ("production", 7, hashlib.sha256(b"policy").hexdigest())
DIRECTIONS = (INITIATOR_TO_RESPONDER, RESPONDER_TO_INITIATOR)
FIELDS = struct.Struct("<4sBBHQIIQ")


def secret(name: str) -> bytes:
    return hashlib.sha256(b"safeser envelope v1 test vector: " + name.encode()).digest()


def key(name: str) -> PrivateKey:
    return PrivateKey.from_bytes(secret(name))


CLIENT = Identity("alice", key("alice static"))
SERVER = Identity("scheduler", key("scheduler static"))
STRANGER = Identity("mallory", key("mallory static"))
ROSTER = {CLIENT.public: "alice", SERVER.public: "scheduler"}


def sides(suite: Suite) -> tuple[Handshake, Handshake]:
    return (
        Handshake(
            initiator=True,
            identity=CLIENT,
            principal_of=ROSTER.get,
            required=lambda _: suite,
            suite=suite,
            policy=POLICY,
            expected_peer="scheduler",
            generate=lambda: key("alice ephemeral"),
        ),
        Handshake(
            initiator=False,
            identity=SERVER,
            principal_of=ROSTER.get,
            required=lambda _: suite,
            policy=POLICY,
            generate=lambda: key("scheduler ephemeral"),
        ),
    )


def flights(suite: Suite) -> tuple[list[bytes], Session, Session]:
    """Run one honest handshake; return what was written, in order, and both sessions."""
    client, server = sides(suite)
    first = client.outgoing
    server.feed(first[:12])
    second = server.feed(first[12:])
    client.feed(second[:12])
    third = client.feed(second[12:])
    server.feed(third)
    return [first, second, third], client.session(), server.session()


def split(suite: Suite) -> tuple[bytes, bytes]:
    """Return the keys that the handshake splits into, from a bare Noise handshake."""
    states = [
        HandshakeState(
            initiator=initiator,
            prologue=preamble(suite),
            static=identity,
            generate=lambda identity=identity: key(f"{identity.principal} ephemeral"),
        )
        for initiator, identity in ((True, CLIENT), (False, SERVER))
    ]
    states[1].read_message(states[0].write_message(b""))
    payloads = [claims("scheduler", None).encode(), claims("alice", "scheduler").encode()]
    states[0].read_message(states[1].write_message(payloads[0]))
    states[1].read_message(states[0].write_message(payloads[1]))
    return states[0].split()


def claims(principal: str, peer: str | None) -> Claims:
    return Claims(principal, peer, *POLICY)


def frame(spec: dict[str, Any]) -> bytes:
    return bytes.fromhex(spec["hex"]) * spec.get("times", 1)


Message = tuple[str, int, str, list[dict[str, Any]]]

MESSAGES: tuple[Message, ...] = (
    ("empty", 0, "", []),
    ("one small frame", 0, "01", [{"hex": "6869"}]),
    ("empty frames count", 0, "80", [{"hex": ""}, {"hex": "00"}, {"hex": ""}]),
    ("4095 bytes: mode 0", 0, "c0", [{"hex": "ab", "times": 4095}]),
    ("4096 bytes: mode 1", 0, "c0", [{"hex": "ab", "times": 4096}]),
    ("both modes", 0, "c3", [{"hex": "61"}, {"hex": "0123", "times": 3000}, {"hex": "7a"}]),
    ("the other way", 1, "01", [{"hex": "6869"}]),
    ("the other way, mode 1", 1, "", [{"hex": "ff", "times": 5000}]),
)

ENCRYPTED: tuple[Message, ...] = (
    ("empty", 0, "", []),
    ("one small frame", 0, "01", [{"hex": "6869"}]),
    ("empty frames count", 0, "80", [{"hex": ""}, {"hex": "00"}, {"hex": ""}]),
    (
        "less than a block, a block and more",
        0,
        "",
        [{"hex": "61", "times": n} for n in (15, 16, 17)],
    ),
    ("a frame of 5000 bytes", 0, "c0", [{"hex": "ab", "times": 5000}]),
    ("a frame of 100000 bytes", 0, "c3", [{"hex": "61"}, {"hex": "0123", "times": 50000}]),
    ("a header of 1000 bytes", 0, "68" * 1000, [{"hex": "7a"}]),
    ("the other way", 1, "01", [{"hex": "6869"}]),
    ("the other way, a larger frame", 1, "", [{"hex": "ff", "times": 5000}]),
)


def messages(suite: Suite) -> list[dict[str, Any]]:
    sessions = flights(suite)[1:]
    made = []
    cases = MESSAGES if suite is Suite.AUTHENTICATE else ENCRYPTED
    for name, direction, header, frames in cases:
        buffers = sessions[direction].seal(bytes.fromhex(header), list(map(frame, frames)))
        start, *bodies = map(bytes, buffers)
        made.append(
            {
                "name": name,
                "direction": DIRECTIONS[direction],
                "header": header,
                "frames": frames,
                "tag": start[32:64].hex(),
                "start": start.hex(),
            }
        )
        if suite is Suite.ENCRYPT:
            made[-1]["rest"] = hashlib.sha256(b"".join(bodies)).hexdigest()
    return made


def sealed(suite: Suite, *contents: tuple[bytes, Sequence[bytes]]) -> list[bytes]:
    client = flights(suite)[1]
    return [b"".join(client.seal(header, frames)) for header, frames in contents]


def fields(
    magic: bytes = b"SSm1",
    version: int = 1,
    kind: int = 1,
    reserved: int = 0,
    sequence: int = 1,
    header: int = 0,
    frames: int = 0,
    body: int = 0,
) -> bytes:
    return FIELDS.pack(magic, version, kind, reserved, sequence, header, frames, body) + bytes(32)


def flipped(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


Invalid = tuple[str, str, bytes, bytes]


def malformed(suite: Suite) -> list[Invalid]:
    """Preludes and tables that are refused by their numbers alone, in both suites."""

    def table(*lengths: int) -> bytes:
        tag = bytes(16) if suite is Suite.ENCRYPT else b""  # of an empty header
        return tag + struct.pack(f"<{len(lengths)}Q", *lengths)

    return [
        ("another magic", "format", b"", fields(magic=b"SSm2")),
        ("version 2", "format", b"", fields(version=2)),
        ("message type 0", "format", b"", fields(kind=0)),
        ("message type 2", "format", b"", fields(kind=2)),
        ("reserved bits set", "format", b"", fields(reserved=0x8000)),
        ("header over the limit", "format", b"", fields(header=(1 << 20) + 1)),
        ("frames over the limit", "format", b"", fields(frames=100_001)),
        ("body over the limit", "format", b"", fields(frames=3, body=(2 << 30) + 1)),
        ("body without frames", "format", b"", fields(body=1)),
        ("body over what its frames hold", "format", b"", fields(frames=1, body=(1 << 30) + 1)),
        ("table adds up to less", "format", b"", fields(frames=1, body=2) + table(1)),
        (
            "table overflows to the right sum",
            "format",
            b"",
            fields(frames=2, body=2) + table(2**64 - 1, 3),
        ),
        (
            "one frame over 1 GiB",
            "format",
            b"",
            fields(frames=2, body=(1 << 30) + 1) + table((1 << 30) + 1, 0),
        ),
        ("sequence 0", "sequence", b"", fields(sequence=0)),
    ]


CONTENT = (b"head", [b"first", b"second"])


def invalid_messages(suite: Suite) -> list[dict[str, Any]]:
    """Each is what the responder reads first on a new session, after ``before`` if there is any."""
    one, two = sealed(suite, CONTENT, CONTENT)
    echo = b"".join(flights(suite)[2].seal(*CONTENT))
    made = [
        *malformed(suite),
        ("sequence 2 comes first", "sequence", b"", two),
        ("replay", "sequence", one, one),
        ("sequence goes back to 0", "sequence", one, fields(sequence=0)),
        ("largest sequence", "sequence", one, fields(sequence=2**64 - 1)),
        ("second message renumbered", "mac", b"", two[:8] + one[8:16] + two[16:]),
        ("tag of zeros", "mac", b"", one[:32] + bytes(32) + one[64:]),
        ("bit of the tag", "mac", b"", flipped(one, 63)),
        ("bit of the header", "mac", b"", flipped(one, 64)),
        ("sealed by the reader itself", "mac", b"", echo),
        *(altered(one) if suite is Suite.AUTHENTICATE else altered_ciphertext(one, two)),
    ]
    return [
        {"name": name, "layer": layer, "before": before.hex(), "wire": wire.hex()}
        for name, layer, before, wire in made
    ]


def altered(one: bytes) -> list[Invalid]:
    """Changes of a message of suite 1."""
    big = sealed(Suite.AUTHENTICATE, (b"", [b"\xab" * 4096]))[0]
    table = 64 + 4
    moved = one[:table] + struct.pack("<QQ", 6, 5) + one[table + 16 :]
    return [
        ("bit of the first frame", "mac", b"", flipped(one, table + 16)),
        ("bit of the last frame", "mac", b"", flipped(one, len(one) - 1)),
        ("byte moved between frames", "mac", b"", moved),
        ("bit of a GMAC frame", "mac", b"", flipped(big, 64 + 8 + 4095)),
    ]


class Forger:
    """An initiator of suite 2 that has the keys and seals otherwise than the document says."""

    header, frames = CONTENT

    def __init__(self) -> None:
        half, session_id = split(Suite.ENCRYPT)[0], flights(Suite.ENCRYPT)[1].id
        derived = {
            purpose: expand(half, DIRECTIONS[0], purpose, session_id)
            for purpose in ("HMAC-SHA256", "AES-256-GCM", "AES-256-GMAC")
        }
        back = expand(split(Suite.ENCRYPT)[1], DIRECTIONS[1], "AES-256-GCM", session_id)
        self.keys = EncryptionKeys(hmac_key=derived["HMAC-SHA256"], gcm_key=derived["AES-256-GCM"])
        self.gcm = AESGCM(derived["AES-256-GCM"])
        self.gmac = AESGCM(derived["AES-256-GMAC"])
        self.back = AESGCM(back)

    @staticmethod
    def nonce(index: int, sequence: int = 1) -> bytes:
        return struct.pack(">QI", sequence, index)

    def message(
        self,
        header: bytes | None = None,
        frames: Sequence[bytes] | None = None,
        *,
        covered: Sequence[bytes] | None = None,
    ) -> bytes:
        """Return a message of ciphertexts, each with its tag behind it, under right HMACs.

        :param covered: what the last HMAC covers in place of *frames*.
        """
        header = self.head() if header is None else header
        frames = self.bodies() if frames is None else frames
        lengths = [len(each) - 16 for each in frames]
        start = fields(header=len(header) - 16, frames=len(frames), body=sum(lengths))[:32]
        table = struct.pack(f"<{len(lengths)}Q", *lengths)
        tag = self.keys.start_tag(start, header, table)
        parts = [part(len(each) - 16, each[-16:]) for each in covered or frames]
        end = self.keys.end_tag(start, header, parts)
        return b"".join((start, tag, header, table, *frames, end))

    def head(self, cipher: AESGCM | None = None, index: int = 2**32 - 1) -> bytes:
        return (cipher or self.gcm).encrypt(self.nonce(index), self.header, None)

    def bodies(
        self,
        cipher: AESGCM | None = None,
        *,
        first: int = 0,
        sequence: int = 1,
        associated: bytes | None = None,
    ) -> list[bytes]:
        return [
            (cipher or self.gcm).encrypt(self.nonce(index, sequence), frame, associated)
            for index, frame in enumerate(self.frames, first)
        ]


def altered_ciphertext(one: bytes, two: bytes) -> list[Invalid]:
    """Changes of a message of suite 2, and messages that a peer sealed in another way."""
    table = 64 + 4 + 16
    first, second, end = table + 2 * 8, table + 2 * 8 + 5 + 16, len(one) - 32
    moved = one[:table] + struct.pack("<QQ", 6, 5) + one[first:]
    same = sealed(Suite.ENCRYPT, (b"", [b"same1", b"same2"]))[0]
    frames = same[-32 - 2 * 21 : -32 - 21], same[-32 - 21 : -32]
    empty = sealed(Suite.ENCRYPT, (b"", [b""]))[0]
    plain = sealed(Suite.AUTHENTICATE, CONTENT)[0]
    forger = Forger()
    assert forger.message() == one
    bodies = forger.bodies()
    forged = {
        "header with a wrong tag": forger.message(flipped(forger.head(), 19)),
        "header with changed ciphertext": forger.message(flipped(forger.head(), 0)),
        "header under the index of a frame": forger.message(forger.head(index=0)),
        "header under the key of GMAC": forger.message(forger.head(forger.gmac)),
        "frame with a wrong tag": forger.message(frames=[bodies[0], flipped(bodies[1], 6 + 15)]),
        "frame with a tag of zeros": forger.message(
            frames=[bodies[0][:-16] + bytes(16), bodies[1]]
        ),
        "frames counted from 1": forger.message(frames=forger.bodies(first=1)),
        "frames under another sequence": forger.message(frames=forger.bodies(sequence=2)),
        "frames under the key of the other direction": forger.message(
            frames=forger.bodies(forger.back)
        ),
        "frames under the key of GMAC": forger.message(frames=forger.bodies(forger.gmac)),
        "frames with associated data": forger.message(frames=forger.bodies(associated=b"head")),
        "frames in the clear, with tags of zeros": forger.message(
            frames=[frame + bytes(16) for frame in forger.frames]
        ),
        "frames in the clear, with GMAC for a tag": forger.message(
            frames=[
                frame + forger.gcm.encrypt(forger.nonce(index), b"", frame)
                for index, frame in enumerate(forger.frames)
            ]
        ),
    }
    return [
        ("bit of the header's tag", "mac", b"", flipped(one, table - 1)),
        ("byte moved between frames", "mac", b"", moved),
        ("header of another message", "mac", b"", one[:64] + two[64:table] + one[table:]),
        ("start of another message", "sequence", b"", two[:first] + one[first:]),
        ("bit of the first frame", "gcm", b"", flipped(one, first)),
        ("bit of the first frame's tag", "gcm", b"", flipped(one, second - 1)),
        ("bit of the last frame", "gcm", b"", flipped(one, second)),
        ("bit of the last frame's tag", "gcm", b"", flipped(one, end - 1)),
        ("frames swapped", "gcm", b"", b"".join((same[:-74], frames[1], frames[0], same[-32:]))),
        ("one frame twice", "gcm", b"", b"".join((same[:-74], frames[0], frames[0], same[-32:]))),
        ("frames of another message", "gcm", b"", one[:first] + two[first:]),
        ("last frame of another message", "gcm", b"", one[:second] + two[second:]),
        ("bit of the tag of an empty frame", "gcm", b"", flipped(empty, len(empty) - 33)),
        ("bit of the last tag", "mac", b"", flipped(one, len(one) - 1)),
        ("last tag of zeros", "mac", b"", one[:end] + bytes(32)),
        ("last tag of another message", "mac", b"", one[:end] + two[end:]),
        ("the tag of the prelude for the last", "mac", b"", one[:end] + one[32:64]),
        ("the last tag in the prelude", "mac", b"", one[:32] + one[end:] + one[64:]),
        ("a last tag over fewer frames", "mac", b"", forger.message(covered=bodies[:1])),
        ("a last tag over other frames", "mac", b"", forger.message(covered=bodies[::-1])),
        ("a message of suite 1", "format", b"", plain + bytes(16 + 2 * 16 + 32)),
        *((name, "gcm", b"", wire) for name, wire in forged.items()),
    ]


def rogue(
    payload: bytes, client: Identity = CLIENT, suite: Suite = Suite.AUTHENTICATE
) -> list[bytes]:
    """What a responder reads from an initiator that is right but for the claims it makes."""
    state = HandshakeState(
        initiator=True,
        prologue=preamble(suite),
        static=client,
        generate=lambda: key("alice ephemeral"),
    )
    first = state.write_message(b"")
    server = sides(suite)[1]
    server.feed(preamble(suite))
    state.read_message(server.feed(first)[12:])
    return [preamble(suite), first, state.write_message(payload)]


def packed(value: object) -> bytes:
    return block(msgpack.packb(value))


def block(data: bytes) -> bytes:
    return (len(data).to_bytes(2, "little") + data).ljust(CLAIMS_SIZE, b"\0")


def invalid_handshakes() -> list[dict[str, Any]]:
    """Each is what the responder reads, piece by piece; the last piece must be refused."""
    start = preamble(Suite.AUTHENTICATE)
    honest = rogue(claims("alice", "scheduler").encode())
    low = (0, 1, 2**255 - 20, 2**255 - 18, 2**255)
    made: list[tuple[str, str, list[bytes]]] = [
        ("plain HTTP", "handshake", [b"GET / HTTP/1"]),
        ("TLS", "handshake", [bytes.fromhex("160301020001000001fc0303")]),
        ("plain Dask TCP", "handshake", [struct.pack("<QI", 2, 0)]),
        ("version 2", "handshake", [start[:8] + b"\x02\x01\0\0"]),
        ("suite 0", "handshake", [start[:9] + b"\0\0\0"]),
        ("suite 3", "handshake", [start[:9] + b"\x03\0\0"]),
        ("reserved byte", "handshake", [flipped(start, 11)]),
        *(
            (f"ephemeral key {number:#x}", "handshake", [start, number.to_bytes(32, "little")])
            for number in low
        ),
        ("bit of the static key", "handshake", [*honest[:2], flipped(honest[2], 0)]),
        ("bit of the claims", "handshake", [*honest[:2], flipped(honest[2], 100)]),
        ("bit of the last tag", "handshake", [*honest[:2], flipped(honest[2], 383)]),
        (
            "a key that nobody lists",
            "handshake",
            rogue(claims("mallory", "scheduler").encode(), STRANGER),
        ),
        ("another principal's name", "claims", rogue(claims("scheduler", "scheduler").encode())),
        ("meant for another peer", "claims", rogue(claims("alice", "worker").encode())),
        ("meant for nobody", "claims", rogue(claims("alice", None).encode())),
        ("no claims", "claims", rogue(bytes(CLAIMS_SIZE))),
    ]
    return [
        {"name": name, "layer": layer, "reads": [piece.hex() for piece in pieces]}
        for name, layer, pieces in made
    ]


def invalid_claims() -> list[dict[str, Any]]:
    good = claims("alice", "scheduler").encode()
    size = int.from_bytes(good[:2], "little")
    plain = msgpack.unpackb(good[2 : 2 + size])
    change: Callable[..., bytes] = lambda **values: packed({**plain, **values})  # noqa: E731
    made = [
        ("nothing", b""),
        ("one byte short", good[:-1]),
        ("one byte long", good + b"\0"),
        ("padding not zero", good[:-1] + b"\1"),
        ("length past the block", b"\xff\xff" + good[2:]),
        ("length one too short", (size - 1).to_bytes(2, "little") + good[2:]),
        ("length one too long", (size + 1).to_bytes(2, "little") + good[2:]),
        ("keys in another order", packed(dict(reversed(plain.items())))),
        ("a key too few", packed({name: plain[name] for name in list(plain)[:-1]})),
        ("a key too many", change(more=1)),
        ("a list", packed(list(plain.values()))),
        ("revision as a float", change(revision=7.0)),
        ("revision negative", change(revision=-1)),
        ("revision over 63 bits", change(revision=2**63)),
        ("revision true", change(revision=True)),
        (
            "revision in a wider integer",
            block(msgpack.packb(plain).replace(b"revision\x07", b"revision\xcc\x07")),
        ),
        ("principal empty", change(principal="")),
        ("principal with a newline", change(principal="alice\n")),
        ("principal too long", change(principal="a" * 65)),
        ("principal as bytes", change(principal=b"alice")),
        ("peer empty", change(peer="")),
        ("hash as text", change(sha256="0" * 64)),
        ("hash too short", change(sha256=bytes(31))),
        ("an extension type", change(policy=msgpack.ExtType(1, b"x"))),
    ]
    return [{"name": name, "layer": "claims", "block": data.hex()} for name, data in made]


def invalid_public_keys() -> list[dict[str, str]]:
    good = CLIENT.public.text
    numbers = (0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18, 2**256 - 1)
    texts = [base64.urlsafe_b64encode(n.to_bytes(32, "little")).decode()[:-1] for n in numbers]
    made = [
        ("nothing", ""),
        ("no prefix", good.removeprefix("x25519:")),
        ("another prefix", good.replace("x25519", "X25519")),
        ("padded", good + "="),
        ("a line end", good + "\n"),
        ("one character short", good[:-1]),
        ("one character more", good + "A"),
        ("the alphabet of base64", good[:10] + "+" + good[11:]),
        ("a blank", good[:10] + " " + good[11:]),
        ("a letter beyond ASCII", good[:10] + "\u00e9" + good[11:]),
        ("spare bits", good[:-1] + chr(ord(good[-1]) + 1)),
        *(
            (f"the number {number:#x}", f"x25519:{text}")
            for number, text in zip(numbers, texts, strict=True)
        ),
    ]
    return [{"name": name, "text": text} for name, text in made]


def invalid_handshakes_of_suite_2() -> list[dict[str, Any]]:
    """What a responder reads that requires suite 2 with this initiator."""
    good = claims("alice", "scheduler").encode()
    weak, honest = rogue(good), rogue(good, suite=Suite.ENCRYPT)
    made = [
        ("less than the responder requires", "suite", weak),
        ("suite 2 changed to 1 on the way", "handshake", [weak[0], *honest[1:]]),
        ("suite 1 changed to 2 on the way", "handshake", [honest[0], *weak[1:]]),
        ("suite 0", "handshake", [honest[0][:9] + b"\0\0\0"]),
        ("suite 3", "handshake", [honest[0][:9] + b"\x03\0\0"]),
        ("a reserved byte beside suite 2", "handshake", [flipped(honest[0], 10)]),
        ("bit of the claims", "handshake", [*honest[:2], flipped(honest[2], 100)]),
    ]
    return [
        {"name": name, "layer": layer, "reads": [piece.hex() for piece in pieces]}
        for name, layer, pieces in made
    ]


def of_a_suite(suite: Suite) -> dict[str, Any]:
    wire, client, _server = flights(suite)
    keys = split(suite)
    identities = {
        role: {
            "principal": identity.principal,
            "static": secret(f"{identity.principal} static").hex(),
            "public": identity.public.text,
            "ephemeral": secret(f"{identity.principal} ephemeral").hex(),
        }
        for role, identity in (("initiator", CLIENT), ("responder", SERVER))
    }
    return {
        "about": "Test vectors of docs/reference/envelope-v1.md; made by generate_envelope_v1.py.",
        "version": 1,
        "suite": int(suite),
        "identities": identities,
        "policy": dict(zip(("name", "revision", "sha256"), POLICY, strict=True)),
        "handshake": {
            "initiator sends": [wire[0].hex(), wire[2].hex()],
            "responder sends": [wire[1].hex()],
            "claims of the responder": claims("scheduler", None).encode().hex(),
            "claims of the initiator": claims("alice", "scheduler").encode().hex(),
            "session id": client.id.hex(),
            "split": [half.hex() for half in keys],
        },
        "keys": {
            direction: {
                purpose: expand(half, direction, purpose, client.id).hex()
                for purpose in PURPOSES[suite]
            }
            for direction, half in zip(DIRECTIONS, keys, strict=True)
        },
        "messages": messages(suite),
        "invalid messages": invalid_messages(suite),
    }


def vectors(suite: Suite) -> dict[str, Any]:
    made = of_a_suite(suite)
    if suite is Suite.ENCRYPT:
        return {**made, "invalid handshakes": invalid_handshakes_of_suite_2()}
    return {
        **made,
        "invalid handshakes": invalid_handshakes(),
        "invalid claims": invalid_claims(),
        "library messages": library_messages(),
        "invalid library messages": invalid_library_messages(),
        "invalid public keys": invalid_public_keys(),
    }


def text(suite: Suite) -> str:
    return json.dumps(vectors(suite), indent=1) + "\n"


if __name__ == "__main__":
    for suite, file in FILES.items():
        file.write_text(text(suite), encoding="ascii")
