"""Read ranges of bytes from an untrusted file on demand.

The one rule: a read returns exactly the requested number of bytes, or is refused; and the memory
held at once is bounded, whatever the file states.
"""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path
from typing import BinaryIO

from safeser.errors import ConfigError, PayloadError

__all__ = ["MAX_HELD", "Source", "cut_off"]

#: What is checked whole is held in memory, and its tree takes some times that.
MAX_HELD = 1 << 30


class Source:
    """A file, or bytes, of a size that does not change."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size = size

    @classmethod
    def of(cls, data: bytes) -> Source:
        return cls(io.BytesIO(data), len(data))

    @classmethod
    def read_from(cls, file: BinaryIO) -> Source:
        """Read a pipe into memory, because it can be read once only."""
        data = file.read(MAX_HELD + 1)
        if len(data) > MAX_HELD:
            raise too_large("that")
        return cls.of(data)

    @classmethod
    def open(cls, path: Path) -> Source:
        """Open the file at *path*; its name does not decide its format."""
        try:
            file = path.open("rb")
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode):
                return cls(file, status.st_size)
            with file:
                return cls.read_from(file)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "that is not a path"
            raise ConfigError(
                f"{path} cannot be read: {reason}", rule="config.file", fix="Name a readable file."
            ) from None

    def close(self) -> None:
        self._file.close()

    def read(self, offset: int, count: int) -> bytes:
        """Return the *count* bytes at *offset*."""
        if offset < 0 or count < 0 or offset + count > self.size:
            raise cut_off("the file ends before its declared size", offset)
        self._file.seek(offset)
        data = self._file.read(count)
        if len(data) != count:
            raise cut_off("the file became shorter while it was read", offset)
        return data

    def whole(self) -> bytes:
        """Return all of it, if that can be held."""
        if self.size > MAX_HELD:
            raise too_large("the file")
        return self.read(0, self.size)


def cut_off(message: str, offset: int) -> PayloadError:
    return PayloadError(
        message, rule="inspect.truncated", where=f"byte {offset}", fix="Have it sent again."
    )


def too_large(what: str) -> PayloadError:
    return PayloadError(
        f"{what} takes more than {MAX_HELD >> 20} MiB to look at",
        rule="inspect.too-large",
        fix="This limit is inspection's own: look at parts of it.",
    )
