"""Paths that a confined process may use: its own files, those of its policy, and Python's.

The one rule: it is stated here once, for the launcher that grants it and for the probes that count
everything else as forbidden.
"""

from __future__ import annotations

import contextlib
import os
import site
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from safeser.errors import ConfigError
from safeser.policy.confined import Confined

__all__ = ["DEVICES", "Own", "is_within", "listed", "modules", "readable", "writable"]

#: Where systems keep programs, libraries and what describes them.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")

#: What the C library, OpenSSL, Python and Dask read of a system: names, zones, certificates, how
#: much memory and how many processors there are.
_CONFIGURATION = (
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/ssl",
    "/etc/timezone",
    "/proc",
    "/sys/devices/system",
    "/sys/fs/cgroup",
)

#: Folders that hold files of all accounts.
_SHARED = frozenset({"/", "/dev", "/etc", "/home", "/mnt", "/opt", "/root", "/run", "/srv"}) | {
    "/tmp",  # noqa: S108
    "/var",
}

#: Devices that hold nothing.
DEVICES = ("/dev/full", "/dev/null", "/dev/random", "/dev/urandom", "/dev/zero")


@dataclass(frozen=True, slots=True)
class Own:
    """The files of one process; each is absolute.

    :param identity: its private key.
    :param audit_key: the key of its log.
    :param audit: the folder of its log, which it writes.
    :param public: roster and policy.
    :param principals: all that the policy lists, whose keys may lie beside its own.
    """

    identity: Path
    audit_key: Path
    audit: Path
    public: tuple[Path, ...] = ()
    principals: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for folder in sorted(map(str, self.folders)):
            if folder in _SHARED:
                raise ConfigError(
                    f"files of a confined process lie in {folder}, of which it may read nothing"
                    " else",
                    rule="confined.folder",
                    fix="Put its key into a folder of its own, and roster and policy into another.",
                )

    @property
    def files(self) -> tuple[Path, ...]:
        """Keys, roster and policy."""
        return (self.identity, self.audit_key, *self.public)

    @property
    def folders(self) -> frozenset[Path]:
        """The folders of these files: one that is replaced is another file to the kernel."""
        return frozenset(path.parent for path in self.files)

    @property
    def other_keys(self) -> Iterator[Path]:
        """Where keys of other principals are, if they lie beside this process's own."""
        beside = {self.identity.parent / f"{name}.key" for name in self.principals}
        for each in self.folders:
            with contextlib.suppress(OSError):
                beside.update(each.glob("*.key"), each.glob("*/*.key"))
        return iter(sorted(beside - {self.identity, self.audit_key}))


def readable(confined: Confined, own: Own) -> tuple[str, ...]:
    """Return the paths that a process may read: those of its policy, its own, and Python's."""
    return _real((*listed(confined), *map(str, own.folders), str(own.audit)))


def listed(confined: Confined) -> tuple[str, ...]:
    """Return the paths that a process may read beside its own files."""
    needed = (*_SYSTEM, *_CONFIGURATION, *DEVICES, *_python())
    return _real((*needed, *confined.read, *confined.write))


def writable(confined: Confined, own: Own) -> tuple[str, ...]:
    """Return in which folders a process may write: those that its policy lists, and its log."""
    return _real((str(own.audit), *confined.write))


def modules() -> tuple[str, ...]:
    """Return where code comes from that runs before a process is confined."""
    users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    told = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return _real((*_python(), *told, *users, os.path.dirname(sys.executable)))


def _python() -> Iterable[str]:
    """Return where modules are; never the folder that a process happens to start in."""
    folders = {*site.getsitepackages(), sys.prefix, sys.base_prefix, sys.exec_prefix}
    told = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return sorted(folders | {each for each in (*told, *_linked()) if os.path.isabs(each)})


def _linked() -> Iterator[str]:
    """Yield what ``.pth`` files of the installed packages add, as editable installs do."""
    for folder in site.getsitepackages():
        for path in Path(folder).glob("*.pth"):
            yield from path.read_text("utf-8", errors="replace").splitlines()


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    """Return *paths* without symbolic links, and without what is below another of them."""
    found: list[str] = []
    for path in sorted({os.path.realpath(path) for path in paths}):
        if not is_within(path, found):
            found.append(path)
    return tuple(found)


def is_within(path: str, folders: Iterable[str]) -> bool:
    """Tell whether *path* is one of *folders*, or below one of them."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)
