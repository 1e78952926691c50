"""Write envelope-v1.json from fixed keys: the vectors of docs/envelope-v1.md.

The one rule: no randomness, so that the file changes only when bytes on the wire do. Run it with
``python tests/vectors/generate_envelope_v1.py``; a test compares the file with what it makes.
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

from safeser.envelope import CLAIMS_SIZE, PREAMBLE, Claims, Handshake, Session
from safeser.envelope.noise import HandshakeState
from safeser.envelope.session import INITIATOR_TO_RESPONDER, RESPONDER_TO_INITIATOR, expand
from safeser.keys import Identity, PrivateKey

FILE = Path(__file__).with_name("envelope-v1.json")
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


def sides(client: Identity = CLIENT) -> tuple[Handshake, Handshake]:
    return (
        Handshake(
            initiator=True,
            identity=client,
            principal_of=ROSTER.get,
            policy=POLICY,
            expected_peer="scheduler",
            generate=lambda: key("alice ephemeral"),
        ),
        Handshake(
            initiator=False,
            identity=SERVER,
            principal_of=ROSTER.get,
            policy=POLICY,
            generate=lambda: key("scheduler ephemeral"),
        ),
    )


def flights() -> tuple[list[bytes], Session, Session]:
    """Run one honest handshake; return what was written, in order, and both sessions."""
    client, server = sides()
    first = client.outgoing
    server.feed(first[:12])
    second = server.feed(first[12:])
    client.feed(second[:12])
    third = client.feed(second[12:])
    server.feed(third)
    return [first, second, third], client.session(), server.session()


def split() -> tuple[bytes, bytes]:
    """Return the keys that the handshake splits into, from a bare Noise handshake."""
    states = [
        HandshakeState(
            initiator=initiator,
            prologue=PREAMBLE,
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


MESSAGES: tuple[tuple[str, int, str, list[dict[str, Any]]], ...] = (
    ("empty", 0, "", []),
    ("one small frame", 0, "01", [{"hex": "6869"}]),
    ("empty frames count", 0, "80", [{"hex": ""}, {"hex": "00"}, {"hex": ""}]),
    ("4095 bytes: mode 0", 0, "c0", [{"hex": "ab", "times": 4095}]),
    ("4096 bytes: mode 1", 0, "c0", [{"hex": "ab", "times": 4096}]),
    ("both modes", 0, "c3", [{"hex": "61"}, {"hex": "0123", "times": 3000}, {"hex": "7a"}]),
    ("the other way", 1, "01", [{"hex": "6869"}]),
    ("the other way, mode 1", 1, "", [{"hex": "ff", "times": 5000}]),
)


def messages() -> list[dict[str, Any]]:
    sessions = flights()[1:]
    made = []
    for name, direction, header, frames in MESSAGES:
        start = bytes(sessions[direction].seal(bytes.fromhex(header), list(map(frame, frames)))[0])
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
    return made


def sealed(*contents: tuple[bytes, Sequence[bytes]]) -> list[bytes]:
    client = flights()[1]
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


def invalid_messages() -> list[dict[str, Any]]:
    """Each is what the responder reads first on a new session, after ``before`` if there is any."""
    one, two = sealed((b"head", [b"first", b"second"]), (b"head", [b"first", b"second"]))
    big = sealed((b"", [b"\xab" * 4096]))[0]
    echo = b"".join(flights()[2].seal(b"head", [b"first", b"second"]))
    table = 64 + 4
    moved = one[:table] + struct.pack("<QQ", 6, 5) + one[table + 16 :]
    made = [
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
        ("table adds up to less", "format", b"", fields(frames=1, body=2) + struct.pack("<Q", 1)),
        (
            "table overflows to the right sum",
            "format",
            b"",
            fields(frames=2, body=2) + struct.pack("<QQ", 2**64 - 1, 3),
        ),
        (
            "one frame over 1 GiB",
            "format",
            b"",
            fields(frames=2, body=(1 << 30) + 1) + struct.pack("<QQ", (1 << 30) + 1, 0),
        ),
        ("sequence 0", "sequence", b"", fields(sequence=0)),
        ("sequence 2 comes first", "sequence", b"", two),
        ("replay", "sequence", one, one),
        ("sequence goes back to 0", "sequence", one, fields(sequence=0)),
        ("largest sequence", "sequence", one, fields(sequence=2**64 - 1)),
        ("second message renumbered", "mac", b"", two[:8] + one[8:16] + two[16:]),
        ("tag of zeros", "mac", b"", one[:32] + bytes(32) + one[64:]),
        ("bit of the tag", "mac", b"", flipped(one, 63)),
        ("bit of the header", "mac", b"", flipped(one, 64)),
        ("bit of the first frame", "mac", b"", flipped(one, table + 16)),
        ("bit of the last frame", "mac", b"", flipped(one, len(one) - 1)),
        ("byte moved between frames", "mac", b"", moved),
        ("bit of a GMAC frame", "mac", b"", flipped(big, 64 + 8 + 4095)),
        ("sealed by the reader itself", "mac", b"", echo),
    ]
    return [
        {"name": name, "layer": layer, "before": before.hex(), "wire": wire.hex()}
        for name, layer, before, wire in made
    ]


def rogue(payload: bytes, client: Identity = CLIENT) -> list[bytes]:
    """What a responder reads from an initiator that is right but for the claims it makes."""
    state = HandshakeState(
        initiator=True, prologue=PREAMBLE, static=client, generate=lambda: key("alice ephemeral")
    )
    first = state.write_message(b"")
    server = sides()[1]
    server.feed(PREAMBLE)
    state.read_message(server.feed(first)[12:])
    return [PREAMBLE, first, state.write_message(payload)]


def packed(value: object) -> bytes:
    return block(msgpack.packb(value))


def block(data: bytes) -> bytes:
    return (len(data).to_bytes(2, "little") + data).ljust(CLAIMS_SIZE, b"\0")


def invalid_handshakes() -> list[dict[str, Any]]:
    """Each is what the responder reads, piece by piece; the last piece must be refused."""
    honest = rogue(claims("alice", "scheduler").encode())
    low = (0, 1, 2**255 - 20, 2**255 - 18, 2**255)
    made: list[tuple[str, str, list[bytes]]] = [
        ("plain HTTP", "handshake", [b"GET / HTTP/1"]),
        ("TLS", "handshake", [bytes.fromhex("160301020001000001fc0303")]),
        ("plain Dask TCP", "handshake", [struct.pack("<QI", 2, 0)]),
        ("version 2", "handshake", [PREAMBLE[:8] + b"\x02\x01\0\0"]),
        ("suite 2", "handshake", [PREAMBLE[:9] + b"\x02\0\0"]),
        ("reserved byte", "handshake", [flipped(PREAMBLE, 11)]),
        *(
            (f"ephemeral key {number:#x}", "handshake", [PREAMBLE, number.to_bytes(32, "little")])
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


# --- library messages ---------------------------------------------------------------------------

PLAIN = {"serializer": "msgpack"}
ARRAY = {
    "serializer": "dask",
    "type": "numpy:ndarray",
    "sub-header": {"shape": [2], "order": "C", "writeable": True, "dtype": "<i2"},
}


def library_messages() -> list[dict[str, Any]]:
    """Headers and frames that stand for a value, which is written in the words of JSON."""
    mark = {kind: bytes((0xC7, 0, code)) for code, kind in enumerate(("tuple", "set"), 1)}
    names = b"\x93" + mark["tuple"] + b"\xa1a\xa1b"
    pair = {"serializer": "collection", "type": "dict", "sub-headers": [PLAIN, PLAIN, ARRAY]}
    failure = ["builtins:KeyError", "'k'", None, "", ["a note"], None, None, False, [], {}, []]
    made: list[tuple[str, Any, str, str | None, list[bytes], Any]] = [
        ("a number", PLAIN, "data", None, [b"\x05"], 5),
        ("an operation", PLAIN, "data", "scatter", [b"\xc0"], None),
        ("each kind", PLAIN, "control", "", [b"\x90"], []),
        (
            "text and bytes",
            PLAIN,
            "task",
            None,
            [b"\x92\xa2\xc3\xa9\xc4\x01\xff"],
            ["\u00e9", {"bytes": "ff"}],
        ),
        ("a wider form inside a frame", PLAIN, "data", None, [b"\xcd\x00\x05"], 5),
        ("a tuple", PLAIN, "data", None, [names], {"tuple": ["a", "b"]}),
        ("a set", PLAIN, "data", None, [b"\x92" + mark["set"] + b"\x07"], {"set": [7]}),
        (
            "a large integer",
            PLAIN,
            "data",
            None,
            [b"\xc7\x09\x04\x01" + bytes(8)],
            {"integer": str(1 << 64)},
        ),
        ("an array", ARRAY, "data", None, [b"\x01\x00\x02\x00"], {"typed": "numpy:ndarray"}),
        (
            "a dictionary with an array",
            {**pair, "frame-lengths": [1, 1, 1]},
            "data",
            None,
            [names, b"\x01", b"\x01\x00\x02\x00"],
            {"a": 1, "b": {"typed": "numpy:ndarray"}},
        ),
        (
            "keys in another order",
            dict(reversed(ARRAY.items())),
            "data",
            None,
            [bytes(4)],
            {"typed": "numpy:ndarray"},
        ),
        (
            "a failure",
            {"serializer": "error"},
            "data",
            None,
            [msgpack.packb([failure])],
            {"failure": "builtins:KeyError"},
        ),
        (
            "a failure in place of a value",
            {"serializer": "error", "failed": True},
            "data",
            None,
            [msgpack.packb([failure])],
            {"failure": "builtins:KeyError"},
        ),
        (
            "a pickle",
            {"serializer": "pickle", "writeable": []},
            "data",
            None,
            [b"\x80\x05K\x05."],
            {"pickle": 5},
        ),
    ]
    return [
        {
            "name": name,
            "header": msgpack.packb([header, kind, operation]).hex(),
            "frames": [each.hex() for each in frames],
            "kind": kind,
            "operation": operation,
            "value": value,
        }
        for name, header, kind, operation, frames, value in made
    ]


def invalid_library_messages() -> list[dict[str, Any]]:
    made: list[tuple[str, str, bytes, list[bytes]]] = []

    def header(name: str, data: bytes, frames: Sequence[bytes] = (b"\x05",)) -> None:
        made.append((name, "library header", data, list(frames)))

    def family(name: str, described: Any, frames: Sequence[bytes] = (b"\x05",)) -> None:
        made.append((name, "family header", msgpack.packb([described, "data", None]), list(frames)))

    good = msgpack.packb([PLAIN, "data", None])
    of = b"\x81\xaaserializer\xa7msgpack"
    header("nothing", b"")
    header("cut off", good[:-1])
    header("a byte follows", good + b"\xc0")
    header("a map", msgpack.packb({"header": PLAIN}))
    header("two elements", msgpack.packb([PLAIN, "data"]))
    header("five elements", msgpack.packb([PLAIN, "data", None, [1], [1]]))
    header("array in a wider form", b"\xdc\x00\x03" + good[1:])
    header("map in a wider form", b"\x93\xde\x00\x01" + of[1:] + b"\xa4data\xc0")
    header("text in a wider form", b"\x93" + of + b"\xd9\x04data\xc0")
    header("a key twice", b"\x93\x82" + of[1:] + of[1:] + b"\xa4data\xc0")
    header("a key that is a number", b"\x93\x82" + of[1:] + b"\x01\xc0\xa4data\xc0")
    header("a key that is bytes", b"\x93\x81\xc4\x0aserializer\xa7msgpack\xa4data\xc0")
    header("text that is not UTF-8", b"\x93" + of + b"\xa4dat\xff\xc0")
    header("an extension", b"\x93" + of + b"\xa4data\xd4\x01\x00")
    header("an extension without content", b"\x93" + of + b"\xa4data\xc7\x00\x01")
    header("a timestamp", b"\x93" + of + b"\xa4data\xd6\xff" + bytes(4))
    lengths = {"serializer": "collection", "type": "list", "sub-headers": [PLAIN]}
    spelt = msgpack.packb([{**lengths, "frame-lengths": [1]}, "data", None])
    header("integer in a wider form", spelt.replace(b"lengths\x91\x01", b"lengths\x91\xcc\x01"))
    header(
        "signed form of a positive integer",
        spelt.replace(b"lengths\x91\x01", b"lengths\x91\xd0\x01"),
    )
    floats = msgpack.packb([{**ARRAY, "sub-header": {"x": 1.5}}, "data", None])
    header("a float of 32 bits", floats.replace(msgpack.packb(1.5), b"\xca\x3f\xc0\x00\x00"))
    header("a family header that is a list", msgpack.packb([["msgpack"], "data", None]))
    header("no kind", msgpack.packb([PLAIN, None, None]))
    header("an unknown kind", msgpack.packb([PLAIN, "Data", None]))
    header("a kind in bytes", msgpack.packb([PLAIN, b"data", None]))
    header("an operation that is a number", msgpack.packb([PLAIN, "data", 5]))
    header("an operation of 129 characters", msgpack.packb([PLAIN, "data", "x" * 129]))
    for name, counts, parts in (
        ("part counts that are nil", None, 1),
        ("part counts that are no array", 1, 1),
        ("part counts of one", [1], 1),
        ("no part counts", [], 0),
        ("a part count of 0", [0, 2], 2),
        ("a part count that is true", [True, 2], 3),
        ("part counts of other parts", [2], 1),
        ("parts that are too short", [2], 2),
    ):
        header(name, msgpack.packb([PLAIN, "data", None, counts]), [b"\x05"] * parts)
    family("no serializer", {})
    family("a serializer that is a number", {"serializer": 5})
    family("an unknown serializer", {"serializer": "json"})
    family("another key", {**PLAIN, "more": 1})
    family("lengths", {**PLAIN, "lengths": [1]})
    family("compression", {**PLAIN, "lengths": [1], "compression": [None]})
    family("a class by pickle", {**ARRAY, "type-serialized": b"x"}, [bytes(4)])
    family("no type", {"serializer": "dask", "sub-header": {}})
    family("an empty type", {**ARRAY, "type": ""})
    family("a type that is not printable", {**ARRAY, "type": "a\nb"})
    family("a type of 129 characters", {**ARRAY, "type": "x" * 129})
    family("a sub-header that is a list", {**ARRAY, "sub-header": []})
    family("sub-headers alone", {**ARRAY, "sub-headers": []})
    family("frame-lengths alone", {**ARRAY, "frame-lengths": []})
    family("too many frames", PLAIN, [b"\x05", b"\x05"])
    family("too few frames", PLAIN, [])
    family("flags that are numbers", {"serializer": "pickle", "writeable": [1]}, [b"N.", b""])
    family("fewer flags than buffers", {"serializer": "pickle", "writeable": []}, [b"N.", b""])
    family("failed that is a number", {"serializer": "error", "failed": 1})
    family("an unknown collection", {**lengths, "type": "deque", "frame-lengths": [1]})
    family("a collection with a frame of its own", {**lengths, "frame-lengths": [0]})
    family("more headers than lengths", {**lengths, "frame-lengths": []})
    family("a negative length", {**lengths, "frame-lengths": [-1]})
    family("a length that is true", {**lengths, "frame-lengths": [True]})
    family("a child without frames", {**lengths, "frame-lengths": [0]}, [])
    family(
        "a child with another key",
        {**lengths, "sub-headers": [{**PLAIN, "lengths": [1]}], "frame-lengths": [1]},
    )
    deep: Any = PLAIN
    for _ in range(101):
        deep = {**lengths, "sub-headers": [deep], "frame-lengths": [1]}
    family("nested deeper than 100", deep)
    return [
        {"name": name, "layer": layer, "header": data.hex(), "frames": [f.hex() for f in frames]}
        for name, layer, data, frames in made
    ]


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


def vectors() -> dict[str, Any]:
    wire, client, _server = flights()
    keys = split()
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
        "about": "Test vectors of docs/envelope-v1.md; made by generate_envelope_v1.py.",
        "version": 1,
        "suite": 1,
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
                for purpose in ("HMAC-SHA256", "AES-256-GMAC")
            }
            for direction, half in zip(DIRECTIONS, keys, strict=True)
        },
        "messages": messages(),
        "invalid messages": invalid_messages(),
        "invalid handshakes": invalid_handshakes(),
        "invalid claims": invalid_claims(),
        "library messages": library_messages(),
        "invalid library messages": invalid_library_messages(),
        "invalid public keys": invalid_public_keys(),
    }


def text() -> str:
    return json.dumps(vectors(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="ascii")
