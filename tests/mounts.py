"""Lays files out as systems mount secrets: names that are links, and a folder that is replaced."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

__all__ = ["Mount"]


class Mount:
    """A folder as Kubernetes mounts a secret or a config map.

    Each name is a link to ``..data/NAME``, ``..data`` is a link to a folder named by a time, and a
    new version is another folder to which ``..data`` is led by one rename; the old one goes.

    :param mode: of the files, as ``defaultMode`` and ``fsGroup`` give it.
    :param folder: mode of the folder itself: of a secret 1777, as that of a memory file system.
    """

    def __init__(self, path: Path, files: Mapping[str, bytes], *, mode: int, folder: int = 0o1777):
        self.path = path
        self._mode = mode
        self._version = 0
        path.mkdir(parents=True)
        self.update(files)
        for name in files:
            (path / name).symlink_to(f"..data/{name}")
        path.chmod(folder)

    @property
    def data(self) -> Path:
        """The folder in which the files are now."""
        return self.path / os.readlink(self.path / "..data")

    def update(self, files: Mapping[str, bytes]) -> None:
        """Replace all files at once, as a changed secret does."""
        before = self.data if self._version else None
        self._version += 1
        folder = self.path / f"..2026_11_23_05_00_00.{self._version:09}"
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)
        for name, data in files.items():
            (folder / name).write_bytes(data)
            (folder / name).chmod(self._mode)
        (self.path / "..data_tmp").symlink_to(folder.name)
        (self.path / "..data_tmp").rename(self.path / "..data")
        if before is not None:
            for each in before.iterdir():
                each.unlink()
            before.rmdir()
