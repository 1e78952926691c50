"""Inspect files that are pickles: one, several in a row, joblib's, and PyTorch's older format.

The one rule: pickle after pickle is read up to the last byte of the file. Remaining bytes that are
no pickle are refused, because another reader may interpret them.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from safeser.errors import PayloadError
from safeser.inspection.examination import OWN_LOADER, Examination
from safeser.inspection.source import cut_off
from safeser.inspection.tensors import check_tensors, storages_of
from safeser.pickles.nodes import DictOf, ListOf
from safeser.pickles.streams import Passage, read_passage

__all__ = ["read_pickles"]

_PROTO = b"\x80"
# How protocols 0 and 1 begin where they write a container, a name or an instance.
_OLD = re.compile(rb"\((?:[dl]p[01]\n|i[A-Za-z_][\w.]*\n)|c[A-Za-z_][\w.]*\n|[\]})]q[\0\1]")
# The first two pickles of torch.save before 1.6, and the third's keys.
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C
_TORCH_VERSION = 1001
_TORCH_SYSTEM = ["little_endian", "protocol_version", "type_sizes"]
# A file that is no pickle at all mostly stops a reader of protocol 0 with one of these.
_NO_PICKLE = frozenset({"opcode", "stack", "text", "memo", "truncated", "grow-target", "name"})


def read_pickles(seen: Examination, data: bytes, *, compression: str = "") -> None:
    """Judge the pickles that *data*, the whole file or what it decompresses to, consists of."""
    seen.compression = compression
    first = _first(seen, data)
    inside = f", compressed by {compression}" if compression else ""
    if first.program.root == _TORCH_MAGIC:
        _read_torch(seen, data, first)
        return
    if first.arrays:
        title = f"a joblib file{inside}"
        seen.is_a("joblib", title, loader="joblib.load", formats=("joblib",))
    else:
        seen.is_a("pickle", f"a pickle{inside}", loader=OWN_LOADER)
    seen.add_pickle("pickle", first)
    at, count, ends = first.end, 1, [0, first.end]
    while at < len(data):
        count += 1
        following = _following(seen, data, at)
        if following.arrays and seen.kind != "joblib":
            title = f"joblib files in a row{inside}"
            seen.is_a("joblib", title, loader="joblib.load", formats=("joblib",))
        else:
            title = f"{count} pickles in a row{inside}"
            seen.is_a(seen.kind, title, loader=seen.loader, formats=seen.formats)
        seen.add_pickle(f"pickle {count}", following)
        at = following.end
        ends.append(at)
    if seen.loader == OWN_LOADER:
        seen.pickles = [data[begin:end] for begin, end in pairwise(ends)]


def _first(seen: Examination, data: bytes) -> Passage:
    try:
        return read_passage(data, 0, seen.budget, arrays=True, persistent=True)
    except PayloadError as error:
        rule = error.rule.removeprefix("pickle.")
        cut = rule == "truncated" and _OLD.match(data)
        if data[:1] != _PROTO and rule in _NO_PICKLE and not cut:
            raise PayloadError(
                "that is no pickle, joblib, NumPy or PyTorch file and no envelope (read as a"
                f" pickle, it ends with: {error.message})",
                rule="inspect.unknown",
                where=error.where,
                fix="Files are told by their content, not by their name.",
            ) from None
        seen.is_a("pickle", "a pickle", loader="")
        raise


def _following(seen: Examination, data: bytes, at: int) -> Passage:
    """Return the pickle that begins at byte *at*, behind another."""
    try:
        return read_passage(data, at, seen.budget, arrays=True, persistent=True)
    except PayloadError as error:
        if data[at : at + 1] == _PROTO:
            raise
        raise PayloadError(
            f"behind the pickle there are {len(data) - at} bytes that are none ({error.message})",
            rule="inspect.trailing",
            where=f"byte {at}",
            fix="Another reader may interpret them; remove them.",
        ) from None


# -- PyTorch before 1.6 ------------------------------------------------------------------------


def _read_torch(seen: Examination, data: bytes, magic: Passage) -> None:
    """Judge what torch.save wrote before 1.6: five pickles, and then the bytes of each storage."""
    loader = "torch.load(weights_only=True)"
    seen.is_a("torch-legacy", "a PyTorch file as before 1.6", loader=loader, formats=("torch",))
    seen.add_pickle("magic number", magic)
    version = _plain(seen, data, magic.end, "version")
    system = _plain(seen, data, version.end, "system")
    root = system.program.root
    if version.program.root != _TORCH_VERSION or not isinstance(root, DictOf):
        raise _bad("is of another version", version.start)
    keys_of_system = root.items[::2]
    if set(map(type, keys_of_system)) != {str} or sorted(keys_of_system) != _TORCH_SYSTEM:
        raise _bad("does not say what system it is from", system.start)
    objects = read_passage(data, system.end, seen.budget, persistent=True)
    seen.add_pickle("objects", objects, persistent=True)
    sizes = storages_of(objects.program, legacy=True)
    check_tensors(objects.program, legacy=True)
    keys = _plain(seen, data, objects.end, "storage keys")
    if not isinstance(keys.program.root, ListOf):
        raise _bad("does not list its storages", keys.start)
    _skip_storages(seen, data, keys.end, keys.program.root.items, dict(sizes))


def _plain(seen: Examination, data: bytes, at: int, name: str) -> Passage:
    passage = read_passage(data, at, seen.budget)
    seen.add_pickle(name, passage)
    return passage


def _skip_storages(
    seen: Examination, data: bytes, at: int, keys: list[Any], sizes: dict[str, tuple[int, int]]
) -> None:
    for key in keys:
        found = sizes.pop(key, None) if type(key) is str else None
        if found is None:
            raise _bad("lists a storage that no tensor uses, or one twice", at)
        count, size = found[0], found[0] * found[1]
        if at + 8 + size > len(data):
            raise cut_off("a storage is cut off", at)
        if int.from_bytes(data[at : at + 8], "little", signed=True) != count:
            raise _bad("has a storage of two different sizes", at)
        seen.add(f"storage {key}", "elements of tensors", at + 8, size)
        at += 8 + size
    if sizes:
        raise _bad("has tensors whose storage it does not list", at)
    if at != len(data):
        raise PayloadError(
            "there is data after the last storage", rule="inspect.trailing", where=f"byte {at}"
        )


def _bad(message: str, at: int) -> PayloadError:
    return PayloadError(f"the file {message}", rule="inspect.torch", where=f"byte {at}")
