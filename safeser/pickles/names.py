"""Check and format names of globals: their exact form, Python 2 spelling, and printed form.

The one rule: a name is compared whole and exactly. No prefixes, no patterns, no attribute walks.
"""

from __future__ import annotations

# The function of str.encode, which would import a module for it when a peer's name is first shown.
from _codecs import unicode_escape_encode
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from functools import lru_cache

from safeser.errors import PayloadError
from safeser.gate.refusals import shortened

__all__ = ["canonical", "check_name", "shown", "spelled"]

# Longer than any real name; long names cost time in error messages and logs.
_MAX_NAME = 512
_MAX_SHOWN = 120


def canonical(module: str, qualname: str) -> tuple[str, str]:
    """Return the Python 3 name that an unpickler reads for a name in a pickle below protocol 3."""
    if (module, qualname) in NAME_MAPPING:
        return NAME_MAPPING[module, qualname]
    return IMPORT_MAPPING.get(module, module), qualname


def check_name(module: str, qualname: str, *, dotted: bool, where: str) -> None:
    """Refuse what cannot be the name of a global.

    Importers cut module names at a NUL, and an empty or odd component means something else to
    every reader, so each component must be an identifier.

    :param dotted: nested names exist since protocol 4; below it CPython reads the dot literally.
    """
    sound = (
        len(module) + len(qualname) <= _MAX_NAME
        and _is_path(module)
        and (_is_path(qualname) if dotted else qualname.isidentifier())
    )
    if not sound:
        raise PayloadError(
            f"{shown(f'{module}:{qualname}')} cannot be the name of a global",
            rule="pickle.name",
            where=where,
            fix="No profile and no limit allows this.",
        )


@lru_cache(maxsize=2048)  # real names are few and repeat; no name that is too long gets here
def _is_path(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def shown(name: str) -> str:
    """Return *name* as plain, short, printable ASCII for messages and records.

    What is not ASCII is spelt by its code, so that a letter that looks like another does not here.
    """
    return shortened(spelled(shortened(name, _MAX_SHOWN)), _MAX_SHOWN)


def spelled(name: str) -> str:
    """Return the whole *name* as printable ASCII, as quoted text in YAML spells it.

    For what a message tells its reader to write.
    """
    return "".join(map(_shown, name))


def _shown(char: str) -> str:
    return char if " " <= char <= "~" else unicode_escape_encode(char)[0].decode("ascii")
