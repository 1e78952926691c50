"""Reload the files of one channel when they change.

The one rule: a file that cannot be read, does not load or may not follow the one in force changes
nothing. It is reported once in the log and the audit log, and the next valid file is adopted. One
that is still being written lacks its last line, and does not load.
"""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safeser.channel.door import Channel
from safeser.errors import SafeserError
from safeser.identity import Identity, Roster
from safeser.policy import Policy
from safeser.policy.ready import is_ready, locate, read_policy
from safeser.policy.source.extends import document

__all__ = ["LiveFiles"]

logger = logging.getLogger("safeser.channel")

#: A file with unchanged status is still read at every third look: two changes within one tick of
#: the file system's clock have one status.
_READ_ANYWAY = 3

#: The content of a file as text to compare, a function that makes its value, and the other files
#: that it depends on.
_Found = tuple[str, Callable[[], Any], tuple[Path, ...]]


class _File:
    """One watched file.

    :param done: its content when the channel was made from it; empty where that is not known.
    """

    def __init__(self, path: Path, read: Callable[[Path], _Found], *, done: str = "") -> None:
        self.path = path.absolute()  # programs change their working directory
        self._read = read
        self._beside: tuple[Path, ...] = ()
        self._done = done  # the content handed out last
        known = bool(done) and self._found()[0] == done
        self._status = self._status_now() if known else ()
        self._looks = 0  # since it was read

    def change(self) -> Callable[[], Any] | None:
        """Return a function that makes the new value if the content is another than last time."""
        status = self._status_now()
        self._looks += 1
        if status == self._status and self._looks < _READ_ANYWAY:
            return None
        self._status, self._looks = status, 0
        found, make = self._found()
        if found == self._done:
            return None
        self._done = found
        return make

    def is_settled(self) -> bool:
        """Tell whether the content handed out last is current, judged by the file's status."""
        return self._status_now() == self._status

    def _found(self) -> tuple[str, Callable[[], Any]]:
        try:
            found, make, self._beside = self._read(self.path)
        except SafeserError as error:
            return f"error {error.rule} {error}", _raising(error.without_frames())
        return found, make

    def _status_now(self) -> tuple[int, ...]:
        return (*_status(self.path), *(part for path in self._beside for part in _status(path)))


def _status(path: Path) -> tuple[int, ...]:
    try:
        found = os.stat(path)  # follows links: Kubernetes swaps a link to a folder
    except (OSError, ValueError):
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _raising(error: SafeserError) -> Callable[[], Any]:
    def make() -> Any:
        raise error

    return make


def _identity(path: Path) -> _Found:
    identity = Identity.load(path)
    return _named(identity), lambda: identity, ()


def _named(identity: Identity) -> str:
    return f"{identity.principal} {identity.public_text}"


def _roster(path: Path) -> _Found:
    data = Roster.read(path)
    return hashlib.sha256(data).hexdigest(), lambda: Roster.decode(data, str(path)), ()


def _held(path: Path, listed: Roster) -> str:
    """Return the content of the roster file at *path* if it is that of *listed*, else ""."""
    try:
        found, make, _ = _roster(path)
        return found if make() == listed else ""
    except SafeserError:
        return ""


def _policy(path: Path) -> _Found:
    text = read_policy(path)
    return document(text).sha256, lambda: Policy.parse(text), text.paths[1:]


class LiveFiles:
    """The identity, policy and roster files of *channel*, which adopts their changes.

    A ready policy is part of the program and is not watched.

    :param identity: path of the private key.
    :param policy: path of the policy, or the name of a ready one.
    :param roster: path of the roster; None where the policy lists all keys.
    :param shadow: like *policy*, of the policy whose refusals are only recorded; None for none.
    """

    def __init__(
        self,
        channel: Channel,
        *,
        identity: Path,
        policy: str,
        roster: Path | None,
        shadow: str | None = None,
    ) -> None:
        self.channel = channel
        # In this order each may depend on the one before it: a new key is listed, then adopted.
        self._files: dict[str, _File] = {}
        if roster is not None:
            listed = channel.standing.listed
            self._files["roster"] = _File(roster, _roster, done=_held(roster, listed))
        if not is_ready(policy):
            self._files["policy"] = _File(locate(policy), _policy, done=channel.policy.sha256)
        if shadow is not None and not is_ready(shadow):
            judged = channel.standing.shadow
            done = "" if judged is None else judged.sha256
            self._files["shadow"] = _File(locate(shadow), _policy, done=done)
        self._files["identity"] = _File(identity, _identity, done=_named(channel.identity))
        self._refused: dict[str, tuple[Callable[[], Any], str]] = {}
        self._lock = threading.Lock()  # changes are adopted in the order in which they were read
        channel.settled_by(self.are_settled)

    def look(self) -> None:
        """Check the files; adopt those that changed, and end sessions whose keys have expired."""
        with self._lock:
            taken = False
            for name, file in self._files.items():
                make = file.change()
                if make is not None:
                    taken |= self._take(name, make)
            for name, (make, _) in list(self._refused.items()) if taken else ():
                self._take(name, make)  # the new roster may list the key that it was refused for
        self.channel.review()
        self.channel.tend()
        self.channel.write_counts()

    def are_settled(self) -> bool:
        """Tell whether no file has changed since it was adopted or refused; thread-safe."""
        # In this order: another thread may have found a change that it is still adopting.
        return all(file.is_settled() for file in self._files.values()) and not self._lock.locked()

    def _take(self, name: str, make: Callable[[], Any]) -> bool:
        """Have the channel adopt the file *name*; return whether that changed anything."""
        try:
            changed = self.channel.adopt(**{name: make()})
        except SafeserError as error:
            said = str(error.without_frames())
            if self._refused.get(name, (None, ""))[1] != said:
                self.channel.note_refused(name, str(self._files[name].path), error)
            self._refused[name] = (make, said)
            return False
        self._refused.pop(name, None)
        return changed
