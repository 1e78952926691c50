"""What only a head that was kept elsewhere shows, and heads that are empty or foreign."""

from __future__ import annotations

import errno
import shutil

import pytest

from safeser.audit import index as index_module
from safeser.audit import verify
from safeser.audit.chain_file import new_file
from safeser.audit.files import Directory
from safeser.audit.key import file_keys
from safeser.audit.report import Expected, head_line
from safeser.errors import AuditError, ConfigError
from tests.audit.conftest import ADMIT

# --- what only a head that was kept elsewhere shows -----------------------------------------------


def put_back(make, place, early, head):
    for path in place.iterdir():
        path.unlink()
    for name, data in early.items():
        (place / name).write_bytes(data)


def begun_anew(make, place, early, head):
    shutil.rmtree(place)
    make("alice").record(ADMIT)


def other_macs(make, place, early, head):
    """Return a head that names other ends than the folder's."""
    expected = Expected.parse(head)
    ends = {chain: (n, bytes(32)) for chain, ((n, _),) in expected.ends.items()}
    return head_line(expected.directory, ends)


@pytest.mark.parametrize(
    ("then", "kinds"),
    [
        (lambda make, *_: make("carol").record(ADMIT), set()),
        (put_back, {"missing tail", "rolled back", "index changed"}),
        (begun_anew, {"rolled back"}),
        (other_macs, {"rolled back"}),
    ],
)
@pytest.mark.parametrize("way", ["expect", "heads"])
def test_a_head_that_was_kept(make, place, key, found, way, then, kinds):
    """Nothing in the folder can show what a head shows."""
    log = make("alice")
    log.record(ADMIT)
    early = {path.name: path.read_bytes() for path in place.iterdir()}
    first = verify(place, key=key).head
    log.record(ADMIT)
    make("bob").record(ADMIT)
    head = verify(place, key=key).head
    log.record(ADMIT)
    log.close()
    head = then(make, place, early, head) or head
    assert verify(place, key=key).ok

    def told(head):
        report = verify(place, key=key, **{way: head if way == "expect" else [head]})
        return {kind for *_, kind in found(report)}

    assert told(head) <= kinds
    assert bool(told(head)) is bool(kinds)
    assert bool(told(first)) is (then is begun_anew)


def test_heads_of_another_log_are_left_out(make, place, key):
    make("alice").record(ADMIT)
    old = verify(place, key=key).head
    shutil.rmtree(place)
    make("alice").record(ADMIT)
    new = verify(place, key=key).head
    (problem,) = verify(place, key=key, expect=old, heads=[old, new]).problems
    assert (problem.kind, "the expected head" in problem.text) == ("rolled back", True)
    junk = ["", "safeser-audit-head-v1", "\x1b[2J", "x" * 5_000, new[:-1] + "\x00"]
    (note,) = verify(place, key=key, heads=[*junk, old, new]).notes
    assert note.startswith("heads of other logs (1) were left out")
    with pytest.raises(ConfigError, match="no head"):
        verify(place, key=key, heads=junk[:3])


def test_a_head_that_was_cut_short_swallows_no_other(make, place, key):
    log = make("alice")
    log.record(ADMIT)
    head = verify(place, key=key).head
    for cut in (10, 60, 120, len(head) - 1):
        (found,) = Expected.gather([head[:cut] + head])
        assert found.ends.keys() >= Expected.parse(head).ends.keys()


@pytest.mark.parametrize(
    "text",
    ["x", "safeser-audit-head-v1", "safeser-audit-head-v2 " + "0" * 32, "x" * (17 << 20)],
)
def test_an_expected_head_that_is_none_is_refused(logs, place, key, text):
    with pytest.raises(ConfigError):
        verify(place, key=key, expect=text)


def test_what_a_process_may_still_take_back_is_not_expected(make, place, key, clean, fails):
    log = make("alice")
    log.record(ADMIT)
    # Two whole records and a part of one are there.
    with fails("ftruncate", errno.EIO), fails(after=1, part=-50):
        with pytest.raises(AuditError, match="No space left"):
            log.record_all([ADMIT, ADMIT, ADMIT])
        report = clean(place, key)
    assert len(report.notes) == 1
    log.record(ADMIT)
    assert verify(place, key=key, expect=report.head).ok
    log.close()
    assert verify(place, key=key, expect=report.head).ok


# --- heads that are empty -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "open", "genesis": "not hexadecimal", "name": "x.log", "file": "1" * 32},
        {"type": "close", "mac": "0", "count": -5},
    ],
)
def test_what_another_holder_of_the_key_wrote_gives_a_report(logs, place, key, clock, fields):
    directory = Directory(place, create=False)
    try:
        registered = logs[0].stem.rpartition("-")[2]
        entry = {"time": 1, "file": registered, **fields}
        index_module.update(directory, key, now=1, write=lambda entries: entries.add(entry))
    finally:
        directory.close()
    assert not verify(place, key=key).ok


@pytest.mark.parametrize("count", [0, -7, 99])
def test_a_genesis_that_names_no_record_of_the_index_gives_a_report(place, key, make, count, found):
    make("alice").close()
    file, name = index_module.new_id(), "x.log"

    def begin(entries):
        keys = file_keys(key, directory=entries.directory_id, file=file)
        chain = new_file(directory, name, file=file, keys=keys, state=None, fsync=False)
        home = {"directory": entries.directory_id, "file": file, "index_count": count}
        chain.append_all(({"time": 1, "type": "genesis", "index_mac": "", **home},), None)
        opened = {"type": "open", "genesis": chain.end.mac.hex(), "name": name, "file": file}
        entries.add({"time": 1, **opened})
        chain.close()

    directory = Directory(place, create=False)
    try:
        index_module.update(directory, key, now=1, write=begin)
    finally:
        directory.close()
    assert (name, 1, 0, "index changed") in found(verify(place, key=key))
