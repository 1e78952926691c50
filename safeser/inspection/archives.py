"""Read archives of arrays: NumPy's npz, PyTorch's zip files (since 1.6), and NumPy's npy files.

The one rule: every record is accounted for. A record that the format does not define is refused,
because another reader may load it, and so is a storage whose size differs from its tensors'.
"""

from __future__ import annotations

import math
import re

from safeser.errors import PayloadError
from safeser.inspection.examination import Examination
from safeser.inspection.npy import MAX_HEAD, NPY_START, parse_npy
from safeser.inspection.tensors import check_tensors, storages_of
from safeser.inspection.zips import Archive, Entry
from safeser.pickles.streams import read_passage

__all__ = ["read_archive", "read_array"]

# What torch.save writes beside data.pkl and the storages, and all that may stand in each.
_NOTES = {
    "version": re.compile(rb"[0-9]{1,4}\n?\Z"),
    "byteorder": re.compile(rb"(?:little|big)\Z"),
    ".format_version": re.compile(rb"[0-9]{1,4}\n?\Z"),
    ".storage_alignment": re.compile(rb"[0-9]{1,6}\n?\Z"),
    ".data/serialization_id": re.compile(rb"[0-9]{1,64}\Z"),
}
_PROGRAM = ("code/", "constants.pkl")


def read_array(seen: Examination) -> None:
    """Judge a NumPy array in a file of its own."""
    seen.is_a("npy", "a NumPy array", loader="numpy.load")
    source = seen.source
    _judge_array(seen, "array", source.read(0, min(source.size, MAX_HEAD)), source.size)


def _judge_array(
    seen: Examination, name: str, head: bytes, size: int, entry: tuple[Archive, Entry] | None = None
) -> None:
    """Judge the array that begins with *head*: a file, or an entry of an archive."""
    array = parse_npy(head, size)
    shape = "x".join(map(str, array.shape)) or "one value"
    seen.add(name, f"array of {array.dtype}, {shape}", array.offset, array.size)
    if array.objects:
        seen.loader = "numpy.load(allow_pickle=True)"
        data = seen.source.whole() if entry is None else entry[0].whole(entry[1])
        passage = read_passage(data, array.offset, seen.budget)
        seen.add_pickle(f"{name}: objects", passage)
        if passage.end != len(data):
            raise PayloadError(
                "there is data after the array's objects",
                rule="inspect.trailing",
                where=f"byte {passage.end} of {name}",
            )


def read_archive(seen: Examination) -> None:
    """Judge a zip archive, if it is NumPy's or PyTorch's."""
    seen.is_a("zip", "a zip archive", loader="")
    archive = Archive(seen.source)
    root = archive.entries[0].name.partition("/")[0] if archive.entries else ""
    if any(entry.name == f"{root}/data.pkl" for entry in archive.entries):
        _read_torch(seen, archive, root)
    elif archive.entries and all(entry.name.endswith(".npy") for entry in archive.entries):
        seen.is_a("npz", "NumPy arrays", loader="numpy.load")
        for entry in archive.entries:
            head = archive.head(entry, MAX_HEAD)
            if not head.startswith(NPY_START):
                raise PayloadError(
                    "the archive has a member that is no array",
                    rule="inspect.npy",
                    where=f"byte {entry.offset}",
                    fix="numpy.load would hand it over as bytes; take it out.",
                )
            _judge_array(seen, entry.name, head, entry.size, (archive, entry))
    else:
        for entry in archive.entries:
            seen.add(entry.name, "not looked at", entry.offset, entry.packed)
        raise PayloadError(
            "the archive is neither NumPy's nor PyTorch's",
            rule="inspect.unknown",
            fix="Unpack it somewhere empty, and look at its files one by one.",
        )


def _read_torch(seen: Examination, archive: Archive, root: str) -> None:
    loader = "torch.load(weights_only=True)"
    seen.is_a("torch", "a PyTorch file", loader=loader, formats=("torch",))
    records = {}
    for entry in archive.entries:
        top, _, name = entry.name.partition("/")
        if top != root:
            raise _bad("has a record outside of its folder", entry)
        if name.startswith(_PROGRAM):
            raise _bad("is TorchScript: it holds a program, which runs when it is loaded", entry)
        if name != "data.pkl" and name not in _NOTES and not name.startswith("data/"):
            raise _bad("has a record that PyTorch does not write", entry)
        records[name] = entry
    data = archive.whole(records["data.pkl"])
    passage = read_passage(data, 0, seen.budget, persistent=True)
    seen.add_pickle(f"{root}/data.pkl", passage, persistent=True)
    if passage.end != len(data):
        raise _bad("has data after its pickle", records["data.pkl"])
    sizes = {key: math.prod(size) for key, size in storages_of(passage.program).items()}
    _check_records(seen, archive, records, sizes)
    check_tensors(passage.program)


def _check_records(
    seen: Examination, archive: Archive, records: dict[str, Entry], sizes: dict[str, int]
) -> None:
    """Check that the records are the notes that PyTorch writes, and the storages of tensors."""
    for name, entry in records.items():
        if name == "data.pkl":
            continue
        head = archive.head(entry, 128)
        what = "a note"
        if name.startswith("data/"):
            what = "elements of tensors"
            if sizes.pop(name.removeprefix("data/"), None) != entry.size:
                raise _bad("has a storage that no tensor uses, or whose size is wrong", entry)
        elif len(head) < entry.size or not _NOTES[name].match(head):
            raise _bad("has a metadata record that PyTorch does not write", entry)
        seen.add(entry.name, what, entry.offset, entry.size)
    if sizes:
        raise PayloadError("the file lacks a storage that a tensor uses", rule="inspect.torch")


def _bad(message: str, entry: Entry) -> PayloadError:
    return PayloadError(f"the file {message}", rule="inspect.torch", where=f"byte {entry.offset}")
