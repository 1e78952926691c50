"""The folder that a nanny creates for each start of its worker, and deletes when the worker ends.

The one rule: the worker can change what lies beside and below that folder, even if it is confined.
So the nanny follows no link there, opens no file, and waits for no lock.

Dask locks such a folder by a file beside it, and deletes those of processes that are gone. It opens
that file by its name for writing, and waits for its lock without end (distributed 2026.8.0,
``diskutils``): a link under that name empties the file to which it leads, and a process that the
worker left behind keeps the nanny from its event loop.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import weakref
from typing import Any

from safeser.dask.servers import Part

__all__ = ["WorkerFolder"]

#: What the names of these folders begin with.
_PREFIX = "nanny-"

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

#: As often is a folder made that another nanny takes for one that was left.
_ATTEMPTS = 3


class WorkerFolder(Part):
    """The folder of one nanny for its worker, which makes its own inside of it.

    Dask's are beside those of all nannies' workers that have the same local_directory.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.path: str | None = None
        self._delete: Any = None
        self._above = self._server._original_local_dir

    def make(self) -> None:
        """Make the folder for the next start, if the last one is over."""
        if self.path is not None:
            return
        nanny = self._server
        above = nanny._workspace.base_dir
        _delete_left(above)
        self.path, lock = _make(above)
        self._delete = weakref.finalize(self, _delete, self.path, lock)
        nanny._original_local_dir = self.path
        if nanny.process is not None:  # which starts again as it did
            nanny.process.worker_kwargs["local_directory"] = self.path

    def has(self, path: str) -> bool:
        """Tell whether *path* is directly in this folder."""
        return os.path.normpath(path) == path and os.path.dirname(path) == self.path

    def delete(self) -> None:
        """Delete the folder with all that is in it."""
        if self.path is not None:
            self._delete()
            self.path, self._server._original_local_dir = None, self._above


def _make(above: str) -> tuple[str, int | None]:
    """Make a folder in *above*, and return it with its lock; None where folders take none."""
    for _ in range(_ATTEMPTS):
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=above)
        lock = _locked(path)
        if lock is not None:
            break
    return path, lock


def _locked(path: str, *, above: int | None = None) -> int | None:
    """Open the folder at *path* and lock it; None if that cannot be done, or it is locked."""
    opened = None
    try:
        opened = os.open(path, _FOLDER, dir_fd=above)
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there = os.stat(path, dir_fd=above, follow_symlinks=False)
        if os.path.samestat(os.fstat(opened), there):
            return opened
    except OSError:
        pass
    if opened is not None:
        os.close(opened)
    return None


def _delete(path: str, lock: int | None) -> None:
    # A link in place of the folder is not followed.
    shutil.rmtree(path, ignore_errors=True)
    if lock is not None:
        os.close(lock)


def _delete_left(above: str) -> None:
    """Delete the folders of nannies that are gone."""
    with contextlib.suppress(OSError):
        opened = os.open(above, _FOLDER)
        try:
            for name in os.listdir(opened):
                if name.startswith(_PREFIX):
                    lock = _locked(name, above=opened)
                    if lock is not None:
                        shutil.rmtree(name, ignore_errors=True, dir_fd=opened)
                        os.close(lock)
        finally:
            os.close(opened)
