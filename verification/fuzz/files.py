"""A coverage-guided fuzz target for ``safeser inspect``; run it with ``make fuzz``.

The one rule it checks: any bytes give a report that JSON can carry, and import nothing; what is
called fine, NumPy reads without pickles to the shape that was told, and a stock unpickler asks for
no global that was not.

    python -m verification.fuzz.files FOLDER [--seconds 900] [any flag of libFuzzer]
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import pickle
import random
import struct
import sys
import warnings
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import atheris

with atheris.instrument_imports(include=["safeser.inspection", "safeser.pickles.streams"]):
    from safeser.inspection import Report, Source, Verdict, examine, trial

import joblib
import numpy as np

from safeser.gate.format import MAGIC
from tests.inspection.forging import archive, legacy_file, state_dict, torch_records
from verification.fuzz import running

# A process for each file takes too long, and loads has a target of its own.
trial.load_apart = lambda *_: None


class Escaped(Exception):
    """A file did something that no file may do, or a reader saw what was not told."""


class Inert:
    """Stands for whatever a stock unpickler asks for: nothing happens to it or by it."""

    def __new__(cls, *_: Any, **__: Any) -> Inert:
        return object.__new__(cls)

    def __setstate__(self, _: Any) -> None: ...
    def __setitem__(self, _: Any, __: Any) -> None: ...
    def append(self, _: Any) -> None: ...
    def extend(self, _: Any) -> None: ...


class Asking(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, told: frozenset[str]) -> None:
        super().__init__(file)
        self.told = told

    def find_class(self, module: str, name: str, /) -> Any:
        if f"{module}:{name}" not in self.told:
            raise Escaped(f"nobody was told of {module}:{name}"[:200])
        return Inert


def one_input(data: bytes, *, strict: bool = True) -> None:
    before = len(sys.modules)
    report = examine(Source.of(data))
    json.dumps(report.as_dict(tree=True))
    if report.verdict is not Verdict.ALLOWED and not report.rule:
        raise Escaped("a refusal without a rule")
    if strict and len(sys.modules) != before:
        raise Escaped("a file imported something")
    if report.verdict is Verdict.ALLOWED:
        read_by_others(data, report)


def read_by_others(data: bytes, report: Report) -> None:
    """Compare what is fine with what NumPy and a stock unpickler find in it."""
    inside = any("see below" in part.what or part.inspection for part in report.parts)
    if inside and report.kind != "pickle":
        return  # arrays of objects, which NumPy reads as pickles alone
    if report.kind == "npy":
        array = np.load(io.BytesIO(data), allow_pickle=False)
        shape = "x".join(map(str, array.shape)) or "one value"
        if not any(f", {shape}" in part.what for part in report.parts):
            raise Escaped(f"NumPy reads an array of {shape}")
    elif report.kind == "npz":
        with np.load(io.BytesIO(data), allow_pickle=False) as found:
            for name in found.files:
                found[name]
    elif report.kind == "pickle":
        file, told = io.BytesIO(data), frozenset(use.name for use in report.globals)
        while file.tell() < len(data):
            try:
                Asking(file, told).load()
            except (TypeError, ValueError, AttributeError, pickle.UnpicklingError):
                return  # what safeser builds of listed names, a stand-in may not be


# -- seeds and mutations --------------------------------------------------------------------------

_PACKED: dict[bytes, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    b"\x1f\x8b": (gzip.decompress, lambda data: gzip.compress(data, 1, mtime=0)),
    b"BZh": (bz2.decompress, bz2.compress),
    b"\xfd7zXZ": (lzma.decompress, lzma.compress),
    b"\x5d\x00": (lzma.decompress, lambda data: lzma.compress(data, lzma.FORMAT_ALONE)),
    b"\x78": (zlib.decompress, zlib.compress),
}
_PIECES = (b"PK\3\4", b"PK\1\2", b"PK\5\6", b"PK\6\6", b"PK\7\x08", b"\x93NUMPY\1\0", b"'|O'", b"O")


def seeds() -> list[bytes]:
    made: list[bytes] = []

    def kept(write: Callable[[io.BytesIO], Any]) -> None:
        file = io.BytesIO()
        write(file)
        made.append(file.getvalue())

    words = np.array(["a", None, [1]], object)
    fields = np.zeros(2, [("a", "<i4"), ("b", "f8", (2,))])
    for array in (np.arange(6).reshape(2, 3), np.asfortranarray(np.ones((2, 3))), fields, words):
        kept(lambda file, array=array: np.save(file, array, allow_pickle=True))
        kept(lambda file, array=array: np.savez(file, array, other=np.ones(2)))
        kept(lambda file, array=array: np.savez_compressed(file, array))
        for way in (0, ("zlib", 3), ("gzip", 3), ("bz2", 3), ("xz", 1), ("lzma", 1)):
            value = {"x": array, "y": [1, array]}
            kept(lambda file, value=value, way=way: joblib.dump(value, file, compress=way))
    for records in (torch_records(), torch_records(state_dict(), _1=b"abcd")):
        made.append(archive(records))
        made.append(archive(records, zip64=False))
        for record in records:
            record.method = 8
        made.append(archive(records))
    made.append(legacy_file(pickle.dumps({"a": 1}, 2), ["0"], (2, bytes(8))))
    made += [pickle.dumps({"a": [1, 2.5]}, protocol) for protocol in range(6)]
    made.append(pickle.dumps(1) + pickle.dumps([2], 2))
    made += [MAGIC + bytes(60), MAGIC + struct.pack("<I3Q", 1, 1, 8, 4) + bytes(100)]
    return made


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Change what is inside of an archive or of something compressed, or leave it to libFuzzer."""
    chance = random.Random(seed)
    made = b""
    with contextlib.suppress(Exception):  # what is broken cannot be taken apart
        if chance.random() < 0.5:
            made = _inside(data, max_size, chance)
    if not made and chance.random() < 0.2:
        at = chance.randrange(len(data) + 1)
        made = data[:at] + chance.choice(_PIECES) + data[at + chance.choice((0, 4)) :]
    return made[:max_size] or atheris.Mutate(data, max_size)


def _inside(data: bytes, max_size: int, chance: random.Random) -> bytes:
    for start, (unpack, pack) in _PACKED.items():
        if data.startswith(start):
            return pack(atheris.Mutate(unpack(data)[:max_size], max_size))
    if data.startswith(b"\x93NUMPY"):
        end = 10 + struct.unpack_from("<H", data, 8)[0]
        header = atheris.Mutate(data[10:end], 512).ljust(118) + b"\n"
        return data[:8] + struct.pack("<H", len(header)) + header + data[end:]
    if not data.startswith(b"PK\3\4"):
        return b""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w") as new:
        members = [(info.filename, info.compress_type, old.read(info)) for info in old.infolist()]
        at = chance.randrange(len(members))
        name, way, body = members[at]
        kind = chance.randrange(4)
        if kind == 0:
            members.append((name, way, body))
        elif kind == 1:
            del members[at]
        elif kind == 2:
            members[at] = (name + chance.choice((".npy", "/", "x")), way, body)
        else:
            members[at] = (name, chance.choice((0, 8)), atheris.Mutate(body, max_size))
        for name, way, body in members:
            new.writestr(zipfile.ZipInfo(name), body, way)
    return file.getvalue()


def warm_up() -> None:
    warnings.simplefilter("ignore")
    for seed in seeds():
        one_input(seed, strict=False)  # codecs, and what NumPy imports late


if __name__ == "__main__":
    running.fuzz(__doc__, 900, seeds(), warm_up, one_input, mutate, longest=16384)
