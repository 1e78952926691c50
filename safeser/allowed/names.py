"""Check an allowed name: its text, and the object that it names.

The one rule: a name stands for the object whose own ``__module__`` and ``__qualname__`` it is. A
name that passes through another module or an instance, or ends at a re-export, is refused before
anything is called. So is a class that can open files through a base class.
"""

from __future__ import annotations

from types import ModuleType

from safeser.allowed.refused import packages_of, refusal
from safeser.errors import ConfigError, PolicyDenied

__all__ = ["PLAIN", "check_allowed", "own_name", "own_object", "shown"]

_INSTEAD = (
    "Write a function or class of a module of your own (mylib, say) that does what is needed and no"
    ' more, and list that: "mylib:NAME".'
)

#: Values that have no name of their own and can do nothing: what the role ``constant`` hands over.
PLAIN = (type(None), bool, int, float, str, bytes, type(...), type(NotImplemented))


def check_allowed(name: str, role: str, *, setstate: bool = False) -> None:
    """Refuse *name* if its library, or the name itself, is known to reach code.

    :param setstate: whether its own ``__setstate__`` is called with what a sender wrote.
    :raises ConfigError: with the reason of the row that refuses it.
    """
    why = refusal(name, role, setstate=setstate)
    if why:
        trusted = setstate and not refusal(name, role)
        raise ConfigError(
            f"{shown(name)} cannot be allowed as {role}"
            f"{' that trusts __setstate__' if trusted else ''}: {why}",
            rule="config.allow-name",
            fix=_INSTEAD,
        )


def own_object(name: str, role: str, module: ModuleType) -> object:
    """Return the object of *module* that *name* stands for, if it calls itself by that name.

    Classes and functions do, and so do most objects that a decorator made of one. Instances,
    partials and methods of instances do not; a constant need not, if it is a plain value.

    :param module: what importing the module that *name* names returned.
    :raises AttributeError: if there is no such object.
    :raises PolicyDenied: if the name passes through anything but classes, stands for an object of
        another name, or is of a class that derives from what opens files, connections and the like.
    """
    found: object = module
    path = name.partition(":")[2].split(".")
    for depth, part in enumerate(path):
        if depth and not isinstance(found, type):
            raise _other(name, found, "passes through")
        found = getattr(found, part)
        _check_bases(name, found)
    if role == "constant" and type(found) in PLAIN:
        return found
    if own_name(found) != name:
        raise _other(name, found, "leads to")
    return found


def _check_bases(name: str, found: object) -> None:
    base = reaching_base(found) if isinstance(found, type) else None
    if base is not None:
        raise PolicyDenied(
            f"{shown(name)} is allowed, but derives from"
            f" {shown(f'{base.__module__}:{base.__qualname__}')}, which opens, starts or points at"
            " what it is told",
            rule="pickle.allowed-name",
            fix=f"Send the values that it is made of. {_INSTEAD}",
        )


def own_name(found: object) -> str | None:
    """Return ``module:qualname`` of an object that has both as text, else None."""
    try:
        module, qualname = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    except Exception:  # an object of any class, whose __getattr__ may do anything
        return None
    if type(module) is not str or type(qualname) is not str:
        return None
    return f"{module}:{qualname}"


def _other(name: str, found: object, how: str) -> PolicyDenied:
    own = own_name(found)
    if isinstance(found, ModuleType):
        what = "another module"
    elif own is None:
        kind = type(found)
        of = shown(f"{kind.__module__}:{kind.__qualname__}")
        what = f"an object without a name of its own, of class {of}"
    else:
        what = shown(own)
    return PolicyDenied(
        f"{shown(name)} is allowed, but that name {how} {what}",
        rule="pickle.allowed-name",
        fix="Allow a class or function by the name that it has itself (its __module__ and"
        f" __qualname__). For anything else: {_INSTEAD[0].lower()}{_INSTEAD[1:]}",
    )


def shown(name: str) -> str:
    """Return *name*, which need not be legal, as short printable ASCII."""
    return ascii(name[:120])[1:-1]


# --- classes of the standard library from which no allowed class may derive -----------------------
# The one rule: a sender can use what a class inherits. A subclass of ``io.FileIO`` opens files and
# one of ``ctypes.Structure`` holds addresses, in every library; honest values derive from none of
# these.

#: Modules whose classes open files or connections, start or attach to processes, load or import
#: code, or hold addresses.
_REACHING_WORDS = (
    "_compression _ctypes _frozen_importlib _frozen_importlib_external _io _pickle _socket "
    "_sqlite3 _ssl asyncio bdb bz2 cmd code codecs compression concurrent ctypes dbm doctest "
    "fileinput ftplib gzip http.client http.server imaplib importlib io logging lzma mailbox mmap "
    "multiprocessing nntplib pdb pickle poplib selectors shelve smtplib socket socketserver "
    "sqlite3 ssl subprocess tarfile telnetlib tempfile trace unittest urllib.request "
    "urllib.response wsgiref xmlrpc zipfile zipimport"
)
_REACHING = frozenset(_REACHING_WORDS.split())


def reaching_base(cls: type) -> type | None:
    """Return the first class that *cls* is or derives from that reaches, or None.

    Exceptions are values wherever they are defined: ``sqlite3.Error`` opens nothing.
    """
    for base in cls.__mro__:
        reaches = not _REACHING.isdisjoint(packages_of(base.__module__))
        if reaches and not issubclass(base, BaseException):
            return base
    return None
