"""Archives byte by byte, as PyTorch writes them, with any header saying what it should not.

The one rule: PyTorch is not needed; what names its globals are opcodes.
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from dataclasses import dataclass, field

import joblib

from safeser.gate.values import Limits
from safeser.inspection import Report, Source, examine

DEFAULTS = Limits()


class Attack:
    def __reduce__(self):
        return os.system, ("true",)


def looked_at(data: bytes, *profiles: str, limits: Limits = DEFAULTS) -> Report:
    return examine(Source.of(data), profiles=profiles, limits=limits)


def joblib_file(value: object, **options: object) -> bytes:
    file = io.BytesIO()
    joblib.dump(value, file, **options)
    return file.getvalue()


@dataclass
class Record:
    """One record; each ``local_`` field is what the local header says instead."""

    name: str
    data: bytes
    flags: int | None = None
    method: int = 0
    crc: int | None = None
    size: int | None = None
    local_name: str | None = None
    local_flags: int | None = None
    local_crc: int | None = None
    local_size: int | None = None
    described_crc: int | None = None
    extra: bytes = b""
    central_extra: bytes = b""
    comment: bytes = b""
    after: bytes = b""
    behind: bytes = b""  # the end of what deflate made, and inside the record all the same
    central: dict[str, int] = field(default_factory=dict)


def archive(
    records: list[Record], *, zip64: bool = True, end: bytes = b"", count: int | None = None
):
    """Return a zip archive as miniz writes it for PyTorch: sizes behind the data, padded to 64."""
    body, directory = bytearray(), bytearray()
    for record in records:
        packed = record.data
        if record.method == 8:
            engine = zlib.compressobj(wbits=-15)
            packed = engine.compress(packed) + engine.flush() + record.behind
        name = record.name.encode()
        crc = zlib.crc32(record.data) if record.crc is None else record.crc
        size = len(record.data) if record.size is None else record.size
        flags = (0x808 if record.data else 0x800) if record.flags is None else record.flags
        local_flags = flags if record.local_flags is None else record.local_flags
        local_name = (record.local_name or record.name).encode()
        begin = len(body)
        room = -(begin + 30 + len(local_name) + 4) % 64
        extra = record.extra or b"FB" + struct.pack("<H", room) + b"Z" * room
        later = bool(flags & 8)
        local_crc = record.local_crc if record.local_crc is not None else 0 if later else crc
        local_size = record.local_size if record.local_size is not None else 0 if later else size
        local_packed = 0 if later else len(packed)
        body += struct.pack(
            "<4s5H3I2H",
            b"PK\3\4",
            *(0, local_flags, record.method, 0, 0, local_crc, local_packed, local_size),
            *(len(local_name), len(extra)),
        )
        body += local_name + extra + packed
        if later:
            described = crc if record.described_crc is None else record.described_crc
            body += struct.pack("<4s3I", b"PK\7\x08", described, len(packed), size)
        body += record.after
        fields = {"disk": 0, "header": begin, "needed": 0, **record.central}
        directory += struct.pack(
            "<4s6H3I5H2I",
            b"PK\1\2",
            *(0, fields["needed"], flags, record.method, 0, 0, crc, len(packed), size),
            *(len(name), len(record.central_extra), len(record.comment)),
            *(fields["disk"], 0, 0, fields["header"]),
        )
        directory += name + record.central_extra + record.comment
    at, number = len(body), len(records) if count is None else count
    made = bytes(body + directory)
    if zip64:
        end_at = len(made)
        made += struct.pack(
            "<4sQ2H2I4Q", b"PK\6\6", 44, 0, 0, 0, 0, number, number, len(directory), at
        )
        made += struct.pack("<4sIQI", b"PK\6\7", 0, end_at, 1)
    return made + (
        end or struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, number, number, len(directory), at, 0)
    )


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def numbers(*values: int) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def storage(kind: str, key: str, count: int, *, legacy: bool = False) -> bytes:
    named = f"c{kind}\n".replace(":", "\n").encode()
    parts = text("storage") + named + text(key) + text("cpu") + number(count)
    return b"(" + parts + (b"N" if legacy else b"") + b"tQ"


def tensor(made_of: bytes, *, begin: int = 0, shape=(2, 3), strides=(3, 1)) -> bytes:
    hooks = b"ccollections\nOrderedDict\n)R"
    inner = made_of + number(begin) + numbers(*shape) + numbers(*strides) + b"\x89" + hooks
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + inner + b"tR"


def state_dict(*tensors: bytes, more: bytes = b"") -> bytes:
    """Return the pickle of a dict of tensors, as protocol 2 writes one."""
    items = b"".join(text(f"layer{n}") + each for n, each in enumerate(tensors))
    filled = b"(" + items + b"u" if items else b""
    metadata = b"}(" + text("_metadata") + b"ccollections\nOrderedDict\n)Rub"
    return b"\x80\x02ccollections\nOrderedDict\n)R" + filled + metadata + more + b"."


PLAIN = state_dict(tensor(storage("torch:FloatStorage", "0", 6)))


def torch_records(pickled: bytes = PLAIN, **storages: bytes) -> list[Record]:
    found = storages or {"0": bytes(24)}
    return [
        Record("archive/data.pkl", pickled),
        Record("archive/byteorder", b"little"),
        *(Record(f"archive/data/{key.lstrip('_')}", data) for key, data in found.items()),
        Record("archive/version", b"3\n"),
        Record("archive/.data/serialization_id", b"0636457737946401051300000025273995036293"),
    ]


def legacy_file(pickled: bytes, keys: list[str], *counted: tuple[int, bytes]) -> bytes:
    """Return what torch.save wrote before 1.6."""
    import pickle

    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
    made = [pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, system)]
    made += [pickled, pickle.dumps(keys, 2)]
    return b"".join(made) + b"".join(struct.pack("<q", count) + raw for count, raw in counted)
