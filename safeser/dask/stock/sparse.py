"""Convert objects that stock Dask sends by their attributes: SciPy's matrices, and dictionaries.

The one rule: no class that a peer names gets attributes that a peer chose. A name selects safeser's
own header for that matrix, whose indexes are checked before SciPy's compiled code reads them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from safeser.dask.contents.unreadable import malformed
from safeser.dask.stock.arrays import holding, typed
from safeser.families.reduced import SHORT
from safeser.pickles.nodes import LEAVES, Apart
from safeser.pickles.trees.writing import instance

if TYPE_CHECKING:
    from safeser.dask.stock.headers import Translator

__all__ = ["NAMES", "fields_of", "translated"]

Made = tuple[dict[str, Any], list[Any]]

_PARTS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "coords"),
    "dia": ("data", "offsets"),
}

#: What the pickle of a class says, to what safeser calls it.
NAMES = {f"scipy.sparse._{kind}:{kind}_matrix": f"scipy.sparse:{kind}_matrix" for kind in _PARTS}

_FLAGS = ("_has_sorted_indices", "_has_canonical_format", "has_canonical_format")
_KEYS = frozenset({"serializer", "type-serialized", "simple", "complex"})
_PART = frozenset({"header", "start", "stop"})


def fields_of(
    own: Translator, name: str, meta: dict[str, Any], frames: list[Any]
) -> tuple[dict[str, Any], dict[str, Made]]:
    """Return the attributes that stand in the header, and those that have frames."""
    simple, others = meta.get("simple"), meta.get("complex")
    if meta.keys() != _KEYS or own.type_of(meta) != name:
        malformed("it is not described by its attributes")
    if type(simple) is not dict or type(others) is not dict or simple.keys() & others.keys():
        malformed("its attributes are not described")
    made, at = {}, 0
    for key, part in others.items():
        if type(key) is not str or type(part) is not dict or part.keys() != _PART:
            malformed("an attribute is not described")
        start, stop = part["start"], part["stop"]
        # One after the other, and each frame once.
        if type(start) is not int or type(stop) is not int or start != at or stop < start:
            malformed("its attributes do not follow each other")
        made[key] = own.value(part["header"], frames[start:stop])
        at = stop
    if at != len(frames) or not all(type(key) is str for key in simple):
        malformed("frames remain that no attribute uses")
    return simple, made


def translated(own: Translator, name: str, meta: dict[str, Any], frames: list[Any]) -> Made:
    """Return safeser's header and frames of a matrix."""
    simple, others = fields_of(own, name, meta, frames)
    wanted = NAMES[name]
    parts = _PARTS[wanted.partition(":")[2][:3]]
    if others.keys() != set(parts):
        malformed("its parts are not those of its format")
    flags = {key: value for key, value in simple.items() if key in _FLAGS}
    shape = simple.get("_shape")
    if simple.keys() != {"_shape", "maxprint", *flags} or type(shape) is not tuple:
        malformed("its attributes are not those of its format")
    said = [*shape, *(value for key, value in simple.items() if key != "_shape")]
    if not LEAVES.issuperset(map(type, said)):
        malformed("its attributes are not plain")
    children = [others[part] for part in parts if part != "coords"]
    state = {**simple, **{part: Apart(at) for at, part in enumerate(parts) if part != "coords"}}
    if "coords" in parts:
        coords = _elements(others["coords"])
        state["coords"] = tuple(Apart(len(children) + at) for at in range(len(coords)))
        children += coords
    tree = instance(name, state)
    if len(tree) > SHORT:
        malformed("its attributes are too long")
    return holding(typed(wanted, {"tree": tree}), children)


def _elements(made: Made) -> list[Made]:
    """Return what a translated tuple holds, one by one."""
    header, frames = made
    if header.get("serializer") != "collection" or header["type"] != "tuple":
        malformed("its coordinates are no tuple")
    found, at = [], 0
    for inner, length in zip(header["sub-headers"], header["frame-lengths"], strict=True):
        found.append((inner, frames[at : at + length]))
        at += length
    return found
