"""Classes of the standard library from which no allowed class may derive.

The one rule: a sender can use what a class inherits. A subclass of ``io.FileIO`` opens files and
one of ``ctypes.Structure`` holds addresses, in every library; honest values derive from none of
these.
"""

from __future__ import annotations

from safeser.allowed.refused import packages_of

__all__ = ["reaching_base"]

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
