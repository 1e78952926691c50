"""Select the profiles that judge a file, and look up what is known of its format.

The one rule: the additions of a format serve inspection only. No load ever uses them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any

from safeser.pickles.profiles import DATA_PROFILES, Entry, Profile

__all__ = ["dtypes", "judged_by", "known_format", "storages", "with_bases"]

# Frames hold arrays, and all hold plain values: alone, a profile would allow next to nothing.
_ALWAYS = "data"
_BASES: Mapping[str, tuple[str, ...]] = {
    "pandas": ("numpy",),
    "scipy": ("numpy",),
    "sklearn": ("numpy", "scipy"),
}


def with_bases(names: Iterable[str]) -> tuple[str, ...]:
    """Return *names* and the profiles that they build on, each once, in the usual order."""
    asked = dict.fromkeys(names)
    if asked:
        Profile.named(*asked)  # refuses an unknown name
    wanted = {base for name in asked for base in (_ALWAYS, *_BASES.get(name, ()), name)}
    return tuple(name for name in DATA_PROFILES if name in wanted)


@cache
def judged_by(names: tuple[str, ...], formats: tuple[str, ...] = ()) -> Profile:
    """Return profiles *names*, and what *formats* add, as one."""
    entries = dict(Profile.named(*names).entries) if names else {}
    for form in formats:
        for entry in _listed(form):
            known = entries.get(entry.name)
            entries[entry.name] = _merged_entry(known, entry) if known else entry
    return Profile("+".join((*names, *formats)), entries.values())


def _merged_entry(known: Entry, added: Entry) -> Entry:
    if "reference" in (known.role, added.role):
        return known.merged(added)
    via = tuple(dict.fromkeys((*known.via, *added.via)))
    return replace(known, via=via, fields=known.fields | added.fields)


def storages() -> Mapping[str, int]:
    """Return the names of PyTorch's storages with the size of an element."""
    found: Mapping[str, int] = _document("torch")["storages"]
    return found


def dtypes() -> Mapping[str, int]:
    """Return the names of PyTorch's dtypes with the size of an element."""
    found: Mapping[str, int] = _document("torch")["dtypes"]
    return found


def known_format(head: bytes) -> tuple[str, str] | None:
    """Return title and sentence of a format that is not read here, which *head* begins with."""
    for row in _document("formats")["format"]:
        if re.match(row["start"].encode(), head):
            return row["title"], row["says"]
    return None


@cache
def _document(form: str) -> Mapping[str, Any]:
    listed = resources.files("safeser.inspection").joinpath("listed", f"{form}.toml")
    return tomllib.loads(listed.read_text("utf-8"))


def _listed(form: str) -> Iterable[Entry]:
    document = _document(form)
    for section in ("references", "storages", "dtypes"):
        for name in document.get(section, ()):
            yield Entry(name, "reference", reviewed=True)
    for name, ways in document["made"].items():
        yield Entry(
            name,
            "class",
            via=tuple(way for way in ways if way in ("called", "instantiated")),
            grows="dict" if "filled" in ways else "",
            # Their readers check what it is; here it only says that there may be some.
            fields=frozenset({"*"} if "built" in ways else ()),
            reviewed=True,
        )
