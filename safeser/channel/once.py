"""What was opened already: ids of detached messages on disk, so that each opens once.

The one rule: where the store does not know, the answer is no. A store that is full, lost, or whose
clock went back refuses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

__all__ = ["Once"]


class Once:
    """A file of the ids of messages that were opened, which processes of one machine may share.

    It is made when it is missing, and then refuses all messages that were dated before: what was
    opened of those, only the lost file knew. So make it before the first message is sealed. A
    message without an end (``ttl=None``) is refused as well: its id could never be forgotten.

    :param path: of the file, in a folder of this user; SQLite keeps two more beside it.
    :param most: ids that it holds at most; while it is full, all messages are refused.
    :param clock: seconds since 1970.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        most: int = 1_000_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        raise NotImplementedError

    def take(self, sender: str, id: bytes, made: int, ends: int | None) -> None:  # noqa: A002
        """Note that a message is opened now, durably.

        :raises EnvelopeError: if it was opened before, or the store cannot tell.
        """
        raise NotImplementedError
