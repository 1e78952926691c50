"""Serialization families: encode objects as headers and frames, and decode them again.

The one rule: only code that safeser or the host program registered rebuilds an object, from values
that are checked first; no name or byte that a peer wrote chooses what runs.
"""

from __future__ import annotations

from safeser.families.errors.wire import ExceptionData, RemoteError
from safeser.families.numpy import arrays
from safeser.families.numpy import names as numpy_names
from safeser.families.numpy import scalars as array_scalars
from safeser.families.pickled import as_code
from safeser.families.plain import Unencodable
from safeser.families.receiving import (
    Checked,
    Reading,
    build,
    bytes_in,
    check,
    check_reading,
    claimed,
    covers,
    derive,
    deserialize,
    judge,
    read,
)
from safeser.families.registered.classes import register_class
from safeser.families.registry import Parts, Registry, Typed, registry
from safeser.families.science import names as library_names
from safeser.families.sending import serialize
from safeser.families.stdlib import buffers, columns, containers, holders
from safeser.families.stdlib import scalars as stdlib
from safeser.families.tree import Node
from safeser.pickles import Budget

__all__ = [
    "Budget",
    "Checked",
    "ExceptionData",
    "Node",
    "Parts",
    "Reading",
    "Registry",
    "RemoteError",
    "Typed",
    "Unencodable",
    "as_code",
    "build",
    "bytes_in",
    "check",
    "check_reading",
    "claimed",
    "covers",
    "derive",
    "deserialize",
    "judge",
    "read",
    "register_class",
    "registry",
    "serialize",
]

for _types in (
    *(stdlib, buffers, containers, columns, holders),
    *(arrays, array_scalars, numpy_names, library_names),
):
    _types.register()
