"""What a file is follows from its content; everything in it is accounted for, or it is not fine."""

from __future__ import annotations

import datetime
import io
import json
import operator
import os
import pickle
import tarfile
import zipfile

import numpy as np
import pytest

from safeser.errors import ConfigError
from safeser.gate.values import Limits
from safeser.inspection import Source, examine
from safeser.inspection.lists import with_bases
from tests.inspection.forging import (
    Attack,
    joblib_file,
    looked_at,
)

LIMITED = Limits(max_memory=120 << 7)
PLAIN = {"a": [1, 2.5, None], "b": b"x"}
ATTACK = pickle.dumps(Attack())


def sealed(block: int, rest: int = 0, sequence: int = 3) -> bytes:
    from safeser.gate.format import DATA, pack_fields

    return pack_fields(DATA, sequence, block, rest) + bytes(32 + block + 16 + rest)


#: Bytes behind a pickle that are none.
MORE = [b"\0", b"junk", b"PK\3\4", b"\x93NUMPY", b"cposix\nsystem\n"]
UNKNOWN = [b"", b"hello world\n", b"{}", b"\x89HDF\r\n", b"GGUF", b"%PDF-1.7"]
#: What no profile allows, or a pickle has at all.
NOTHING = [b"\x80\x02\x82\x01.", b"\x80\x04\x94N.", b"\x80\x02]b.", b"\x80\x02N(R."]
ELSEWHERE = pickle.dumps(pickle.PickleBuffer(b"x"), 5, buffer_callback=lambda _: None)
# fmt: off
FILES = {
    **{f"pickle of protocol {n}": (0, "", pickle.dumps(PLAIN, n)) for n in range(6)},
    **{f"attack of {n}": (1, "pickle.global", pickle.dumps(Attack(), n)) for n in range(6)},
    "a pickle hidden behind another": (1, "pickle.global", pickle.dumps(PLAIN) + ATTACK),
    "joblib behind a pickle": (0, "", pickle.dumps(1) + joblib_file([np.arange(3)])),
    **{f"a pickle and {more}": (1, "inspect.trailing", pickle.dumps(PLAIN) + more)
        for more in MORE},
    "half a second pickle": (2, "pickle.truncated", (pickle.dumps(PLAIN) * 2)[:-2]),
    "too many pickles": (3, "inspect.too-large", b"N." * 1001),
    **{f"nothing {at}": (1, None, data) for at, data in enumerate(NOTHING)},
    "a persistent id": (1, "pickle.global", b"\x80\x02X\1\0\0\0xQ."),
    "buffers that are elsewhere": (1, "inspect.buffers", ELSEWHERE),
    "too deep to walk": (3, "pickle.max-depth", b"\x80\x02" + b"]" * 300 + b"a" * 299
        + b"."),
    **{f"unknown {data}": (2, "inspect.unknown", data) for data in UNKNOWN},
    # Lists for a format are for files of it.
    "a wrapper outside of joblib": (1, "pickle.global",
        b"\x80\x02cjoblib.numpy_pickle\nNumpyArrayWrapper\n."),
    "a storage outside of torch": (1, "pickle.global",
        b"\x80\x02ctorch\nFloatStorage\n."),
    "an envelope": (2, "inspect.not-verified", sealed(9)),
    "a large envelope": (2, "inspect.not-verified", sealed(8, 70_000)),
    "an envelope of another version": (2, None, b"SSm2\x09" + bytes(59)),
    "an envelope of another length": (2, None, sealed(9).replace(b"\x09" + bytes(7),
        b"\xff" * 8)),
}
# fmt: on


@pytest.mark.parametrize(("code", "rule", "data"), FILES.values(), ids=FILES)
def test_files(code, rule, data):
    report = looked_at(data)
    assert report.verdict.code == code
    assert rule in (None, report.rule)
    assert rule != "pickle.global" or b"posix" not in data or "is called" in report.reason


def test_several_in_a_row():
    report = looked_at(pickle.dumps(1) + pickle.dumps(PLAIN, 0) + pickle.dumps([2], 2))
    assert report.title == "3 pickles in a row"
    assert [part.offset for part in report.parts] == [0, 5, 5 + len(pickle.dumps(PLAIN, 0))]


def test_limits_are_for_the_whole_file():
    assert looked_at(pickle.dumps([1] * 50), limits=LIMITED).verdict.code == 0
    assert looked_at(pickle.dumps([1] * 50) * 3, limits=LIMITED).rule == "pickle.max-memory"


WHOLE = [pickle.dumps([PLAIN, datetime.date(2020, 1, 1), "x" * 300], n) for n in range(2, 6)]


@pytest.mark.parametrize(("least", "whole"), [*((0, each) for each in WHOLE), (4, sealed(4, 9))])
def test_every_cut_is_noticed(least, whole):
    assert {looked_at(whole[:size]).verdict.code for size in range(least, len(whole))} == {2}


def test_tar_archives_are_recognised():
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        made.addfile(tarfile.TarInfo("pickle"), io.BytesIO())
    assert looked_at(file.getvalue()).kind == "tar"
    # PyTorch goes by the sum of a header alone, so a pickle may be one too, with another in it.
    forged = bytearray(pickle.dumps({"a": "x" * 200, "b": "y" * 255, "c": "z" * 99}, 2)[:512])
    forged[148:156] = b" " * 8
    forged[148:156] = b"%06o\0 " % sum(forged)
    for field, size in ((100, 8), (108, 8), (116, 8), (124, 12), (136, 12), (329, 8), (337, 8)):
        begin = sum(forged[field : field + size])
        forged[field : field + size] = b"0" * size
        assert begin != 0
    forged[148:156] = b" " * 8
    forged[148:156] = b"%06o\0 " % sum(forged)
    assert looked_at(bytes(forged)).kind == "tar"
    # Only by its own sum: other files may have those letters there.
    assert looked_at(b"\0" * 257 + b"ustar" + bytes(250)).kind == "unknown"
    assert looked_at(pickle.dumps(b"u" * 200 + b"ustar" * 20)).kind == "pickle"


# -- envelopes -----------------------------------------------------------------------------------


def test_an_envelope_is_shown_and_never_fine():
    report = looked_at(sealed(9, 70_000))
    assert [part.size for part in report.parts] == [64, 9 + 16, 70_000]
    assert "not verified" in report.title
    assert looked_at(sealed(9) + b"x").parts[-1].name == "behind it"


# -- profiles ------------------------------------------------------------------------------------


def test_profiles_bring_what_they_build_on():
    assert with_bases(["pandas"]) == ("data", "numpy", "pandas")
    assert with_bases(["data"]) == ("data",)
    with pytest.raises(ConfigError):
        with_bases(["everything"])


def test_the_report_says_which_profiles_it_takes():
    data = pickle.dumps([datetime.date(2020, 1, 1), ValueError("x")])
    report = looked_at(data)
    assert report.needs == ("data", "exceptions")
    refused = looked_at(data, "numpy")
    assert refused.verdict.code == 1
    assert "--profile exceptions" in refused.fix


def test_other_loaders_are_given_values_alone():
    # safeser hands getattr exact values; joblib's unpickler would hand it anything.
    value = [np.arange(3), operator.itemgetter(1)]
    data = joblib_file(value)
    report = looked_at(data)
    assert report.verdict.code == 1
    assert "--profile functions" in report.fix
    assert looked_at(data, "numpy", "functions").verdict.code == 0
    assert looked_at(pickle.dumps(value[1])).verdict.code == 0


# -- reports -------------------------------------------------------------------------------------


def test_json_is_bounded_whatever_the_file_is():
    many = b"".join(pickle.dumps([n]) for n in range(900))
    told = looked_at(many).as_dict()
    assert (told["parts_in_all"], len(told["parts"])) == (900, 200)
    assert sum("tree" in part for part in told["parts"]) == 20
    names = b"".join(b"cmod%d\nname\n0" % n for n in range(1500))
    told = looked_at(b"\x80\x02" + names + b"N.").as_dict(tree=False)
    assert (told["globals_in_all"], len(told["globals"])) == (1500, 1000)
    assert len(json.dumps(told)) < 1 << 20


def test_hostile_names_are_shown_plain():
    name = "\x1b[2J" + "n" * 300
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        made.writestr(name.replace("\x1b", "é"), b"x")
    part = looked_at(file.getvalue()).parts[0]
    assert part.name.isascii()
    assert part.name.isprintable()
    assert len(part.name) < 130


def test_sources(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"N.")
    source = Source.open(path)
    assert source.whole() == b"N."
    path.write_bytes(b"N")
    assert examine(source).rule == "inspect.truncated"
    source.close()
    for wrong in (tmp_path, tmp_path / "none"):
        with pytest.raises(ConfigError, match="cannot be read"):
            Source.open(wrong)


def test_sources_that_are_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr("safeser.inspection.source.MAX_HELD", 10)
    assert looked_at(pickle.dumps("x" * 20)).rule == "inspect.too-large"
    with pytest.raises(Exception, match="takes more than"):
        Source.read_from(io.BytesIO(bytes(11)))
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    keep = os.open(fifo, os.O_RDWR)
    os.write(keep, bytes(20))
    with pytest.raises(Exception, match="takes more than"):
        Source.open(fifo)
    os.close(keep)


def test_an_array_may_be_larger_than_what_is_held(monkeypatch):
    monkeypatch.setattr("safeser.inspection.source.MAX_HELD", 10)
    assert looked_at(numpy_file(np.save, np.arange(100))).verdict.code == 0


def numpy_file(save, *args, **named):
    file = io.BytesIO()
    save(file, *args, **named)
    return file.getvalue()
