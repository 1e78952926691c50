"""Zip archives in which two readers would see two things are refused, whatever they hold."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import numpy as np
import pytest

from tests.inspection.forging import Record, archive, looked_at, torch_records


def records(**first: object) -> list[Record]:
    made = torch_records()
    for name, value in first.items():
        setattr(made[0], name, value)
    return made


def test_an_archive_as_pytorch_writes_it():
    for made in (archive(torch_records()), archive(torch_records(), zip64=False)):
        assert looked_at(made).verdict.code == 0
    assert looked_at(archive(records(method=8))).verdict.code == 0


@pytest.mark.parametrize("tampered", [
    {"local_name": "archive/evil.pkl"},  # CVE-2025-1944
    {"flags": 0x809},  # CVE-2025-1945: encrypted, says the directory
    {"local_flags": 0x809}, {"flags": 0x2808}, {"flags": 0x828},
    {"crc": 1},  # CVE-2025-10156: the record is damaged, or is it
    {"described_crc": 1}, {"local_crc": 1}, {"local_size": 5}, {"size": 1}, {"size": 1 << 20},
    {"extra": b"\x75\x70\x01\x00x"},  # another name for it, in Unicode
    {"extra": b"\x01\x00\x08\x00" + bytes(8)}, {"extra": b"FB\x09\x00"}, {"extra": b"FB"},
    {"extra": b"FB\x00\x00FB\x00\x00"}, {"central_extra": b"\x75\x70\x01\x00x"}, {"comment": b"x"},
    {"after": b"PK\x03\x04"}, {"after": b"\x00"}, {"central": {"header": 1}},
    {"central": {"disk": 1}}, {"central": {"needed": 84}},
    {"name": "archive/../data.pkl"}, {"name": "/archive/data.pkl"},
    {"name": "archive//data.pkl"}, {"name": "archive\\data.pkl"},
    {"name": "archive/data.pkl\x00.txt"}, {"name": "archive/"}, {"name": "a" * 600},
], ids=str)  # fmt: skip
def test_an_archive_that_says_two_things(tampered):
    report = looked_at(archive(records(**tampered)))
    assert report.verdict.code == 1
    assert report.rule == "inspect.zip"


def changed(made, *changes):
    """Return *made* with other bytes in some places, which may count from its end."""
    forged = bytearray(made)
    for at, content in changes:
        forged[at : at + len(content) or None] = content
    return bytes(forged)


def other_method():
    made, method = archive(torch_records()), struct.pack("<H", 12)
    places = made.find(b"PK\3\4") + 8, made.find(b"PK\1\2") + 10
    return changed(made, *((at, method) for at in places))


def undecoded(name, flags):
    plain = b"xx"[: len(name)]
    made = archive([Record(plain.decode(), b"data", flags=flags)])
    return made.replace(plain + b"FB", name + b"FB").replace(plain + b"PK", name + b"PK")


def broken_deflate():
    made = archive([Record("archive/data.pkl", b"abc" * 50, method=8)])
    begin = made.find(b"Z" * 3)
    begin += len(made[begin:]) - len(made[begin:].lstrip(b"Z"))
    return changed(made, (begin, bytes([made[begin] ^ 0x07])))


def empty_directory(before):
    sizes = 0, 0, 0, 0, 0, len(before), 0
    return before + struct.pack("<4s4H2IH", b"PK\5\6", *sizes)


MADE, COUNT = archive(torch_records()), len(torch_records())
# fmt: off
FORGED = {
    "another method": other_method(),
    "a name that is no UTF-8": undecoded(b"\xff", 0x808),
    "a name that is no ASCII": undecoded(b"\xc3\xa9", 0x8),
    # PyTorch's reader finds names without regard to case; others take the last of two.
    "two of one name": archive([*torch_records(), Record("archive/data.pkl", b"N.")]),
    "two of one name but for case": archive([*torch_records(), Record("archive/DATA.pkl", b"N.")]),
    "one record hidden": archive(torch_records(), count=COUNT - 1),
    "one record more": archive(torch_records(), count=COUNT + 1),
    **{f"second end at {at}": changed(MADE, (at, bytes([new]))) for at, new in (
        (-42 + 4, 1), (-42 + 16, 2), (-42 + 8, 1), (-42 - 56 + 4, 1), (-42 - 52, 9))},
    **{f"{size} stated": archive([Record("archive/data.pkl", bytes(100), method=8, size=size)])
        for size in (0, 10, 99, 101, 5000)},
    "broken deflate": broken_deflate(),
    "bytes before an empty directory": empty_directory(b"PK\3\4" + bytes(30)),
}
# fmt: on


@pytest.mark.parametrize("data", FORGED.values(), ids=FORGED)
def test_an_archive_that_is_read_in_two_ways(data):
    assert looked_at(data).rule == "inspect.zip"


@pytest.mark.parametrize("end", [
    struct.pack("<4s4H2IH", b"PK\5\6", 1, 0, 5, 5, 1, 1, 0),
    struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 4, 5, 1, 1, 0),
    struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 5, 5, 1, 1, 0),
    struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 5, 5, 1, 1, 9),
])  # fmt: skip
def test_ends_that_contradict_each_other(end):
    for zip64 in (True, False):
        assert looked_at(archive(torch_records(), zip64=zip64, end=end)).verdict.code == 1


def test_an_archive_that_is_cut_off():
    made = archive(torch_records())
    assert {looked_at(made[:size]).verdict.code for size in range(4, len(made))} == {2}
    assert looked_at(made + b"x").verdict.code == 2
    assert looked_at(b"PK\x03\x04" + made).verdict.code == 1


@pytest.mark.parametrize(("name", "most"), [("_MAX_ENTRIES", 2), ("MAX_HELD", 10)])
def test_what_is_too_large_is_not_read(monkeypatch, name, most):
    monkeypatch.setattr(f"safeser.inspection.zips.{name}", most)
    assert looked_at(archive(torch_records())).rule == "inspect.too-large"


def test_a_bomb_is_refused_before_it_is_inflated():
    bomb = Record("a.npy", bytes(90 << 20), method=8)
    for each in (bomb, Record("archive/data.pkl", b"N.", method=8, size=1 << 31)):
        report = looked_at(archive([each]))
        assert (report.verdict.value, report.rule) == ("over-limit", "inspect.bomb")


@pytest.mark.parametrize(("size", "packed", "rule"), [
    (24, 24, ""), (25, 24, "inspect.zip"), (24, 25, "inspect.zip"), (24, 0, "inspect.zip"),
    (0, 0, "inspect.zip"), ((1 << 32) - 1, (1 << 32) - 1, "inspect.zip"),
])  # fmt: skip
def test_sizes_that_python_before_3_11_4_repeated(size, packed, rule):
    extra = struct.pack("<2H2Q", 1, 16, size, packed)
    for place in ("extra", "central_extra"):
        made = torch_records()
        repeated = Record("archive/data/0", bytes(24), flags=0x800, **{place: extra})
        report = looked_at(archive([*made[:2], repeated, *made[3:]]))
        assert report.rule == rule


def test_data_behind_the_end_of_what_inflates(monkeypatch):
    monkeypatch.setattr("safeser.inspection.zips._CHUNK", 64)
    packed = Record("archive/data.pkl", bytes(1000), method=8)
    assert looked_at(archive([packed])).rule != "inspect.zip"
    engine = zlib.compressobj(wbits=-15)
    stream = engine.compress(bytes(1000)) + engine.flush()
    for more in (b"x", bytes(200), bytes(64 - len(stream)) + b"hidden"):
        whole = archive([Record("archive/data.pkl", bytes(1000), method=8, behind=more)])
        assert looked_at(whole).rule == "inspect.zip"


def test_an_archive_of_something_else_is_listed_and_not_judged():
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr("inner.zip", b"PK")
    report = looked_at(file.getvalue())
    assert (report.verdict.code, report.kind) == (2, "zip")
    assert [part.name for part in report.parts] == ["inner.zip"]
    assert looked_at(b"PK\5\6" + bytes(18)).verdict.code == 2


def test_numpys_own_archives():
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, a=np.arange(9), b=np.ones((2, 2)))
        report = looked_at(file.getvalue())
        assert (report.verdict.code, report.kind) == (0, "npz")
        assert [part.what for part in report.parts] == ["array of <i8, 9", "array of <f8, 2x2"]


def test_a_member_that_is_no_array():
    assert looked_at(archive([Record("a.npy", b"\x80\x04N.")])).rule == "inspect.npy"
