"""The index is written once: what a thief of the present key, or a writer without one, gets."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from safeser.audit import read, verify
from safeser.audit.index import new_id
from safeser.errors import AuditError
from tests.audit.registry.forging import DAY, FILES, Fields, Folder, copied, put_back

KEEP = replace(FILES, keep_age=90 * DAY)
MICRO = 1_000_000


@pytest.fixture
def folder(tmp_path, key) -> Folder:
    return Folder(tmp_path / "home", initial=key)


# --- with the present key -------------------------------------------------------------------------


def removal(close: Fields, **changed: object) -> Fields:
    """Return the entry of an honest removal of a file that ended at the entry *close*."""
    end = {name: close[name] for name in ("file", "count", "mac")}
    late = int(str(close["time"])) + 100 * DAY * MICRO
    return {"type": "remove", "time": late, "why": "older than 60 s", **end, **changed}


def compression(close: Fields) -> Fields:
    return {"type": "compress", "file": close["file"], "sha256": "0" * 64, "size": 100}


def honest(path: Path, close: Fields, **changed: object) -> Fields:
    genesis = next(iter(read(path))).mac.hex()
    return {
        "type": "open",
        "file": close["file"],
        "name": path.name,
        "genesis": genesis,
        "version": 2,
        **changed,
    }


def hide(fields: Fields) -> Fields | None:
    return None if fields.get("bytes") == 7 else fields


#: What is appended, from the folder, this morning's file and its ``close`` entry.
THIEVES: dict[str, Callable[[Folder, Path, Fields], list[Fields]]] = {
    "a second start and end": lambda f, p, c: list(f.rewritten(p, hide)),
    "a second start alone": lambda f, p, c: [honest(p, c)],
    "a second end": lambda f, p, c: [{**c, "count": 3}],
    "the same end again": lambda f, p, c: [c],
    "two ids with one name": lambda f, p, c: [honest(p, c, file=new_id())],
    "the name of a compressed form": lambda f, p, c: [
        honest(p, c, file=new_id(), name=f"{p.name}.gz")
    ],
    "an end before the start": lambda f, p, c: [{**c, "file": new_id()}],
    "a compression of no file": lambda f, p, c: [compression({**c, "file": new_id()})],
    "a removal of no file": lambda f, p, c: [removal({**c, "file": new_id()})],
    "an end after a compression": lambda f, p, c: [compression(c), c],
    "two compressions": lambda f, p, c: [compression(c), compression(c)],
    "a compression after a removal": lambda f, p, c: [removal(c), compression(c)],
    "two removals": lambda f, p, c: [removal(c), removal(c)],
    "an id that was removed": lambda f, p, c: [removal(c), honest(p, c, name="b.log")],
    "a name that was removed": lambda f, p, c: [removal(c), honest(p, c, file=new_id())],
    "a removal with another count": lambda f, p, c: [removal(c, count=7)],
    "a removal with another MAC": lambda f, p, c: [removal(c, mac="0" * 64)],
    "a removal without an end": lambda f, p, c: [removal(c, mac="", count=0)],
    "a removal before its time": lambda f, p, c: [removal(c, why=f"older than {101 * DAY} s")],
    "a removal before the end": lambda f, p, c: [
        removal(c, time=int(str(c["time"])) - 1, why="older than 0 s")
    ],
    "a removal without a rule": lambda f, p, c: [removal(c, why="because")],
    "a removal for bytes that there are not": lambda f, p, c: [
        removal(c, total=1 << 50, why="more than 131072 bytes")
    ],
    "a removal for fewer bytes": lambda f, p, c: [removal(c, total=9, why="more than 10 bytes")],
    "a removal for unstated bytes": lambda f, p, c: [removal(c, why="more than 10 bytes")],
}


@pytest.mark.parametrize("thief", THIEVES)
@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
def test_what_the_present_key_cannot_enter(folder, key, found, thief, gone):
    morning = folder.closed("alice")
    head = verify(folder.place, key=key).head
    folder.closed("bob")
    close = folder.entry("close", morning)
    before = len(folder.entries())
    entries = THIEVES[thief](folder, morning, close)
    folder.add(*entries)
    kept = morning.read_bytes()
    if gone:
        morning.unlink()
    for options in ({}, {"expect": head}, {"heads": [head]}):
        report = verify(folder.place, key=key, **options)
        lines = [line for name, line, _, kind in found(report) if kind == "index changed"]
        assert lines, str(report)
        assert set(lines) <= set(range(before + 1, before + 1 + len(entries)))
    folder.now += 200 * DAY
    with pytest.raises(AuditError, match="the index was changed"):
        folder.tidy(KEEP)
    assert gone or morning.read_bytes() == kept


def test_entries_of_another_folder_are_none(folder, key, tmp_path, found):
    folder.closed("alice")
    other = Folder(tmp_path / "other", initial=key)
    other.closed("alice")
    lines = (other.place / "index").read_bytes().splitlines(keepends=True)
    with (folder.place / "index").open("ab") as index:
        index.writelines(lines[1:])
    assert ("index", "index changed") in {
        (f, k) for f, _, _, k in found(verify(folder.place, key=key))
    }
    with pytest.raises(AuditError, match="tampered"):
        folder.tidy(KEEP)


# --- a removal and a head that is elsewhere -------------------------------------------------------


class Against(NamedTuple):
    """A removal that an index can hold, by the days after a file's end at which things happen.

    :param removed: as the entry says; *now* by the clock of the reader.
    :param keep: days for which the reader knows that files are kept; 0 where that is not known.
    :param closed: by how many days its end is dated otherwise.
    """

    name: str
    removed: int
    now: int
    keep: int
    permitted: bool
    closed: int = 0


@pytest.mark.parametrize(
    "row",
    [
        Against("an honest one, by a rule that the reader does not know", 100, 101, 0, False),
        Against("an honest one", 100, 101, 90, True),
        Against("at the last moment", 90, 90, 90, True),
        Against("too early", 89, 101, 90, False),
        Against("dated tomorrow", 100, 1, 90, False),
        Against("of an end that is dated back", 0, 1, 90, False, closed=-100),
    ],
    ids=lambda row: row.name,
)
def test_a_removal_against_a_head(folder, key, row):
    log = folder.log("alice")
    head = log.head()
    folder.now += row.closed * DAY
    log.close()
    folder.now -= row.closed * DAY
    path, start = Path(log.path), folder.now
    before = verify(folder.place, key=key).head
    late = (start + row.removed * DAY) * MICRO
    folder.add(removal(folder.entry("close", path), time=late))
    path.unlink()
    path.with_suffix(".head").unlink()
    after = verify(folder.place, key=key)
    assert after.ok, str(after)
    (note,) = after.notes
    assert "removed by retention" in note

    def kinds(**heads: object) -> set[str]:
        clock = lambda: (start + row.now * DAY) * 1_000 * MICRO  # noqa: E731
        report = verify(folder.place, key=key, keep_age=row.keep * DAY, clock=clock, **heads)
        return {problem.kind for problem in report.problems}

    wanted = set() if row.permitted else {"removed file"}
    assert kinds(expect=before) == kinds(heads=[head]) == kinds(heads=[head, before]) == wanted
    alone = [text for text in before.split() if "=" not in text or path.stem[-32:] in text]
    assert kinds(expect=" ".join(alone)) == (wanted if len(alone) > 2 else set())
    assert kinds(expect=after.head) == kinds() == set()


@pytest.mark.parametrize("ended", ["not", "close", "compress"])
def test_a_removal_of_a_file_that_was_written_to_for_long(folder, key, ended):
    """Its start was long ago; a thief of the present key dates its end, or leaves it out."""
    log = folder.log("alice")
    log.record({"event": "admit"})
    folder.now += 100 * DAY
    log.record({"event": "admit"})
    folder.closed("bob")
    heads = [log.head(), verify(folder.place, key=key).head]
    path, last = Path(log.path), list(read(log.path))[-1]
    file, end = path.stem[-32:], {"count": 0, "mac": ""}
    back = (folder.now - 99 * DAY) * MICRO
    if ended == "close":
        end = {"count": last.sequence + 1, "mac": last.mac.hex()}
        folder.add(
            {"type": "close", "file": file, "size": path.stat().st_size, "time": back, **end}
        )
    elif ended == "compress":
        folder.add({"type": "compress", "file": file, "sha256": "0" * 64, "size": 1, "time": back})
    folder.add({"type": "remove", "file": file, "why": "older than 60 s", **end})
    path.unlink()
    path.with_suffix(".head").unlink()
    assert verify(folder.place, key=key).ok is (ended != "not")
    options = {"keep_age": 90 * DAY, "heads": heads}
    kinds = {p.kind for p in verify(folder.place, key=key, clock=folder.clock, **options).problems}
    assert kinds == {"removed file"} | ({"index changed"} if ended == "not" else set())
    folder.now += 91 * DAY
    assert verify(folder.place, key=key).ok is (ended != "not")


def test_a_removal_against_the_head_of_the_file_alone(folder, key):
    folder.closed("bob")
    before = verify(folder.place, key=key).head
    path = folder.closed("alice")
    alone = verify(path, key=key).head
    folder.add(removal(folder.entry("close", path)))
    path.unlink()
    path.with_suffix(".head").unlink()
    assert verify(folder.place, key=key, heads=[before]).ok
    for heads in ([alone], [before, alone]):
        (problem,) = verify(folder.place, key=key, heads=heads).problems
        assert problem.kind == "removed file"


def test_a_head_from_before_a_file_says_nothing_of_its_removal(folder, key):
    folder.closed("alice")
    head = verify(folder.place, key=key).head
    path = folder.closed("bob")
    folder.add(removal(folder.entry("close", path)))
    path.unlink()
    path.with_suffix(".head").unlink()
    assert verify(folder.place, key=key, expect=head).ok


# --- without any key ------------------------------------------------------------------------------


def _edits(folder: Folder, *pairs: tuple[str, str]) -> Callable[[], None]:
    undo = [folder.edit(old.encode(), new.encode()) for old, new in pairs]
    return lambda: [each() for each in reversed(undo)] and None


def _names(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    swapped = f'"name":"{young.name[:-5]}X.log'
    edits = [(f'"name":"{old.name}', swapped), (f'"name":"{young.name}', f'"name":"{old.name}')]
    return _edits(folder, *edits, (swapped, f'"name":"{young.name}'))


def _ids(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    a, b, held = (f'"file":"{each}","mac"' for each in (young.stem[-32:], old.stem[-32:], "0" * 32))
    return _edits(folder, (a, held), (b, a), (held, b))


def _moved(attack: Callable[[Folder, Path, Path], Callable[[], None]]):
    """Return the attack, with a move of the key while the index is changed."""

    def made(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
        undo = attack(folder, young, old)
        with contextlib.suppress(AuditError):
            folder.closed("dora")
        return undo

    return made


def _dated(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    return folder.date_back(young, 200 * DAY)


def _last_dated(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    last = max(folder.place.glob("*.log"), key=lambda p: int(str(folder.entry("close", p)["time"])))
    return folder.date_back(last, 200 * DAY)


def _key_line(folder: Folder, old: str, new: str) -> Callable[[], None]:
    """Change the last record that moved the key."""
    path = folder.place / "index"
    line = [raw for raw in path.read_bytes().splitlines() if b'"type":"key"' in raw][-1].decode()
    assert line.count(old) == 1
    return folder.edit(line.encode(), line.replace(old, new).encode())


def _key_as_close(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    """Have the record that moved the key say that the file ended long ago, its tag as it was.

    The index stays as long as it is: what the line needs more, the first line gives.
    """
    path = folder.place / "index"
    before = path.read_bytes()
    raws = before.splitlines()
    number = max(n for n, raw in enumerate(raws) if b'"type":"key"' in raw)
    entry, close = folder.entries()[number], folder.entry("close", young)
    time = int(str(close["time"])) - 200 * DAY * MICRO
    body = (
        f'{{"count":{close["count"]},"digest":"{entry["digest"]}","file":"{close["file"]}",'
        f'"first":{entry["first"]},"seq":{number},"tag":"{entry["tag"]}","time":{time},'
        '"type":"key","type":"close"}'
    )
    forged = raws[number][:83] + body.encode() + b"}"
    raws[0] = raws[0][: len(raws[0]) - (len(forged) - len(raws[number]))]
    raws[number] = forged
    changed = b"".join(raw + b"\n" for raw in raws)
    assert len(changed) == len(before)

    def write(data: bytes) -> None:
        with path.open("r+b") as file:
            file.write(data)

    write(changed)
    return lambda: write(before)


def _no_tag(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    tag = next(str(e["tag"]) for e in reversed(folder.entries()) if e["type"] == "key")
    return _key_line(folder, f'"tag":"{tag}"', f'"tag":"{"z" * 64}"')


def _of_two_types(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    time = folder.entries()[-2]["time"]
    return _key_line(folder, f'"time":{time},"type":"key"', '"time":1,"type":"key","type":"abcde"')


def _without_moves(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    path = folder.place / "index"
    before = path.read_bytes()
    path.write_bytes(before.replace(b'"type":"key"', b'"type":"kez"'))
    return lambda: path.write_bytes(before) and None


def _other_time(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    """Change what no later key verifies in the record that moved the key, but for its tag."""
    entry = next(e for e in reversed(folder.entries()) if e["type"] == "key")
    return _key_line(folder, f'"time":{entry["time"]}', f'"time":{int(str(entry["time"])) + 1}')


def _untagged(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    """Have the record look like one of an older release, which vouched for nothing."""
    return _key_line(folder, '"tag":', '"tug":')


def _truncated(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    now = copied(folder.place)
    lines = now["index"].splitlines(keepends=True)
    (folder.place / "index").write_bytes(b"".join(lines[:-2]))
    return lambda: put_back(folder.place, now)


def _linked(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    undo = folder.date_back(young, 200 * DAY)
    index, other = folder.place / "index", folder.place.parent / "other"
    index.rename(other)
    index.symlink_to(other)

    def restore() -> None:
        other.replace(index)
        undo()

    return restore


def _inflated(folder: Folder, young: Path, old: Path) -> Callable[[], None]:
    """Have the files look larger than they are, in each of their forms."""
    before = copied(folder.place)
    for path in folder.place.glob("*.log*"):
        with path.open("ab") as file:
            file.write(b"\0" * (1 << 20))
        if path.suffix == ".gz":
            path.with_suffix("").write_bytes(b"\0" * (1 << 20))
    folder.place.joinpath("fat").symlink_to("/dev/zero")

    def restore() -> None:
        left = copied(folder.place)
        for name in [*left.keys() - before.keys(), "fat"]:
            if name.endswith(".log") or name == "fat":
                folder.place.joinpath(name).unlink()
        same = left.keys() & before.keys() - {"index", "index.head"}
        put_back(folder.place, {name: before[name] for name in same})

    return restore


#: Ways to have a process remove a file for who can write to the folder and has no key. Each is
#: given the file, and one that is older, and returns what puts things back.
WRITERS: dict[str, Callable[[Folder, Path, Path], Callable[[], None]]] = {
    "an end that is dated back": _dated,
    "and the key moves meanwhile": _moved(_dated),
    "the last end that is dated back": _last_dated,
    "names that change places": _names,
    "names, and the key moves meanwhile": _moved(_names),
    "ends that change places": _ids,
    "the key's record as an end": _key_as_close,
    "the key's record as an end, and the key moves": _moved(_key_as_close),
    "a tag taken out": _untagged,
    "a tag taken out, and the key moves": _moved(_untagged),
    "fewer entries vouched for": lambda f, y, o: _key_line(f, '"first":0', '"first":1'),
    "entries to come vouched for": lambda f, y, o: _key_line(f, '"first":0', '"first":9'),
    "a tag that is none": _no_tag,
    "a key's record that is none": lambda f, y, o: _key_line(f, '{"mac":"', '{"mad":"'),
    "a key's record of two types": _of_two_types,
    "a key's record of another time": _other_time,
    "a key's record of another time, and the key moves": _moved(_other_time),
    "no record of a move": _without_moves,
    "an entry that is none": lambda f, y, o: f.edit(b'"version":1', b'"version" 1'),
    "an index that is cut": _truncated,
    "an index that is a link": _linked,
    "files that are larger": _inflated,
}

#: Where the pass over the files goes on as if nothing were.
PASSES = ("a tag taken out", "a tag taken out, and the key moves", "files that are larger")


@pytest.mark.parametrize("writer", WRITERS)
def test_what_without_a_key_removes_nothing(folder, key, writer):
    old = folder.closed("frank")
    folder.now += 10 * DAY
    young = folder.closed("alice")
    folder.closed("carol")
    keep = KEEP
    if writer == "files that are larger":
        folder.large("erika")
        folder.tidy(replace(FILES, compress=True))
        assert list(folder.place.glob("*.gz"))
        keep = replace(FILES, keep_size=1 << 20)
    folder.now += 85 * DAY
    before = set(copied(folder.place)) - {old.name, old.with_suffix(".head").name}
    restore = WRITERS[writer](folder, young, old)
    if writer in PASSES:
        folder.tidy(keep)
    else:
        with pytest.raises(AuditError, match=r"index was changed|tampered|not a regular"):
            folder.tidy(keep)
    restore()
    assert before <= set(copied(folder.place))
    report = verify(folder.place, key=key)
    assert report.ok, str(report)
    if writer not in PASSES:  # and nothing of the change is vouched for from then on
        folder.tidy(keep)
        assert not old.exists()
        assert young.exists()
        assert verify(folder.place, key=key).ok
