"""X25519 identities of principals, and the roster that says which public key speaks for whom.

The one rule: private bytes leave an identity through :meth:`Identity.save` alone. They are never
printed, pickled, copied, compared or put into an error.
"""

from __future__ import annotations

import base64
import datetime
import enum
import errno
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, SupportsIndex

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from safeser.errors import AuthenticationError, ConfigError
from safeser.values import check_principal

__all__ = [
    "Identity",
    "KeepsSecrets",
    "KeyState",
    "PrivateKey",
    "PublicKey",
    "Roster",
    "RosterEntry",
]

KEY_SIZE = 32

_FIELD_PRIME = 2**255 - 19

# The u-coordinates of the points whose order divides 8, on the curve and on its twist: whoever
# offers one gets a shared secret that everybody knows (RFC 7748, section 6.1).
_LOW_ORDER = frozenset(
    {
        0,
        1,
        _FIELD_PRIME - 1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
    }
)

_PUBLIC_TEXT = re.compile(r"x25519:([A-Za-z0-9_-]{43})\Z")
_IDENTITY_TEXT = re.compile(
    rb"safeser-identity-1\n"
    rb"principal: ([A-Za-z0-9][A-Za-z0-9_.@-]{0,63})\n"
    rb"private: ([A-Za-z0-9_-]{43})\n\Z"
)
_IDENTITY_MAX = 256  # the longest legal file has 148 bytes

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_ROSTER_MAX_BYTES = 4 << 20
_ROSTER_MAX_ENTRIES = 20_000  # a key for each node of the largest clusters; 4 MiB of lines
_COMMENT_MAX = 200


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


def _decode(text: str) -> bytes | None:
    """Return the 32 bytes that 43 base64url characters stand for; None if not the one spelling."""
    data = base64.urlsafe_b64decode(text + "=")
    # The last character has two spare bits: without this, four texts would name one key.
    return data if _encode(data) == text else None


class KeepsSecrets:
    """Refuse to pickle or copy: a copy of a secret is a second place that it can leak from."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds secrets and is never pickled or copied")

    def __getstate__(self) -> NoReturn:
        raise TypeError(f"{type(self).__name__} holds secrets and is never pickled or copied")


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One X25519 public key: 32 bytes, canonical, and not a point of low order.

    Encodings that X25519 would reduce to another key are refused, so that equal keys have equal
    bytes and no second spelling of a retired key passes a roster.
    """

    raw: bytes

    def __post_init__(self) -> None:
        if not isinstance(self.raw, bytes) or len(self.raw) != KEY_SIZE:
            raise ConfigError("a public key has 32 bytes", rule="config.key")
        coordinate = int.from_bytes(self.raw, "little")
        if coordinate >= _FIELD_PRIME or coordinate in _LOW_ORDER:
            raise ConfigError(
                "that is not the public key of any private key",
                rule="config.key",
                fix="Copy the key again from its owner.",
            )

    @classmethod
    def parse(cls, text: str) -> PublicKey:
        """Return the key that *text* spells, ``x25519:`` and 43 characters of base64url."""
        match = _PUBLIC_TEXT.match(text) if isinstance(text, str) else None
        raw = _decode(match[1]) if match else None
        if raw is None:
            raise ConfigError(
                "that is not a public key; one is 'x25519:' and 43 letters, digits, '-' or '_'",
                rule="config.key",
            )
        return cls(raw)

    @property
    def text(self) -> str:
        return "x25519:" + _encode(self.raw)

    @property
    def fingerprint(self) -> str:
        """80 bits of the key's SHA-256 in four groups, for people to compare by eye or voice."""
        digest = base64.b32encode(hashlib.sha256(self.raw).digest()[:10]).decode("ascii").lower()
        return "-".join(digest[start : start + 4] for start in range(0, 16, 4))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"PublicKey({self.text!r})"


class PrivateKey(KeepsSecrets):
    """One X25519 private key that can agree on shared secrets and show its public half."""

    __slots__ = ("_key", "public")

    def __init__(self, key: X25519PrivateKey) -> None:
        self._key = key
        self.public = PublicKey(key.public_key().public_bytes_raw())

    @classmethod
    def generate(cls) -> PrivateKey:
        return cls(X25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, raw: bytes) -> PrivateKey:
        return cls(X25519PrivateKey.from_private_bytes(raw))

    def exchange(self, public: PublicKey) -> bytes:
        """Return the 32 bytes that this key and *public* share."""
        try:
            return self._key.exchange(X25519PublicKey.from_public_bytes(public.raw))
        except ValueError:
            # All zero: a low-order point. PublicKey refuses them; this is the library's own check.
            raise AuthenticationError("the peer could not be authenticated") from None

    def _secret_text(self) -> str:
        return _encode(self._key.private_bytes_raw())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(public={self.public.text!r})"


class Identity(KeepsSecrets):
    """Who this process is: one principal and one private key of it."""

    __slots__ = ("_principal", "_private")

    def __init__(self, principal: str, private: PrivateKey) -> None:
        self._principal = check_principal(principal)
        self._private = private

    @classmethod
    def generate(cls, principal: str) -> Identity:
        """Make a new key for *principal*; nothing is written until :meth:`save`."""
        return cls(principal, PrivateKey.generate())

    @property
    def principal(self) -> str:
        return self._principal

    @property
    def public(self) -> PublicKey:
        return self._private.public

    def exchange(self, public: PublicKey) -> bytes:
        """Return the 32 secret bytes that this identity and the owner of *public* share."""
        return self._private.exchange(public)

    def __repr__(self) -> str:
        return f"Identity(principal={self.principal!r}, public={self.public.text!r})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file at *path*, readable by its owner only, and sync it.

        Never replaces a file: an overwritten key cannot be brought back.
        """
        lines = ("safeser-identity-1", f"principal: {self.principal}")
        text = "\n".join((*lines, f"private: {self._private._secret_text()}", ""))
        try:
            _write_new(Path(path), text.encode("ascii"), mode=0o600)
        except FileExistsError:
            raise _refused(
                path, "exists already", fix="Choose another path; keys are never overwritten."
            ) from None
        except (OSError, ValueError) as error:
            raise _refused(path, f"cannot be written: {_reason(error)}") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Identity:
        """Read the key file at *path*, which must be a regular file of ours that nobody else reads.

        Raises :class:`ConfigError` that names the path and the fix, never the content.
        """
        data = _read_file(
            path,
            private=True,
            limit=_IDENTITY_MAX,
            rule="config.identity",
            make="safeser keys new",
        )
        match = _IDENTITY_TEXT.match(data)
        raw = _decode(match[2].decode("ascii")) if match else None
        if match is None or raw is None:
            raise _refused(
                path,
                "is not an identity file",
                fix="Make one with 'safeser keys new', or name the right file.",
            )
        return cls(match[1].decode("ascii"), PrivateKey.from_bytes(raw))


def _shown(path: str | os.PathLike[str]) -> str:
    text = os.fspath(path)
    return "".join(char if char.isprintable() else "?" for char in text[:300])


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "not a usable path"


def _refused(
    path: str | os.PathLike[str], what: str, *, rule: str = "config.identity", fix: str = ""
) -> ConfigError:
    return ConfigError(f"{_shown(path)} {what}", rule=rule, fix=fix)


def _read_file(
    path: str | os.PathLike[str], *, private: bool, limit: int, rule: str, make: str
) -> bytes:
    """Return at most *limit* bytes of a regular file that only its rightful owner could have made.

    A private file must be ours and nobody else's to read, and is not reached through a link. A
    public one may be root's; whoever could write it could make himself anybody.
    """
    # 1. open without waiting for the writer of a FIFO; 2. judge what was opened, not what the path
    # may name by now; 3. read one byte more than is allowed, whatever the size claims to be.
    no_link = os.O_NOFOLLOW if private else 0
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | no_link)
    except (OSError, ValueError) as error:
        number = error.errno if isinstance(error, OSError) else None
        what, fix = {
            errno.ENOENT: ("does not exist", f"{_correct(path)}make one with '{make}'."),
            errno.ELOOP: ("is a symbolic link", "Name the file itself."),
        }.get(number or 0, (f"cannot be opened: {_reason(error)}", ""))
        raise _refused(path, what, rule=rule, fix=fix) from None
    try:
        _check_status(path, os.fstat(handle), private=private, rule=rule)
        data = b""
        while len(data) <= limit and (more := os.read(handle, limit + 1 - len(data))):
            data += more
    except OSError as error:
        raise _refused(path, f"cannot be read: {_reason(error)}", rule=rule) from None
    finally:
        os.close(handle)
    if len(data) > limit:
        raise _refused(path, "is too large to be what it should be", rule=rule)
    return data


def _correct(path: str | os.PathLike[str]) -> str:
    """Return the beginning of what to do about a file that is not there."""
    if os.path.isabs(path):
        return "Correct the path, or "
    return f"Correct the path, which is looked for in {_shown(os.getcwd())}, or "


def _check_status(
    path: str | os.PathLike[str], status: os.stat_result, *, private: bool, rule: str
) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if not stat.S_ISREG(status.st_mode):
        raise _refused(path, "is not a regular file", rule=rule, fix="Name the file itself.")
    if status.st_uid != os.geteuid() and (private or status.st_uid != 0):
        raise _refused(
            path,
            "belongs to another user",
            rule=rule,
            fix="Give each user files of their own, or change the owner.",
        )
    if mode & (0o077 if private else 0o022):
        change = "600" if private else "go-w"
        if_meant = "If this is the identity that you mean, run" if private else "Run"
        what = f"can be {'used' if private else 'written'} by others (mode {mode:04o})"
        raise _refused(path, what, rule=rule, fix=f"{if_meant}: chmod {change} {_shown(path)}")


def _write_new(path: Path, data: bytes, *, mode: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    handle = os.open(path, flags, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(handle, mode)  # whatever the umask is
            file.write(data)
            file.flush()
            os.fsync(handle)
    except OSError:
        path.unlink(missing_ok=True)  # half a key is worse than none
        raise
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class KeyState(enum.Enum):
    """Where a key is in its life. Only ``active`` keys speak for their principal."""

    PENDING = "pending"
    ACTIVE = "active"
    RETIRED = "retired"


# When two rosters disagree about a key, the more careful state wins.
_CAREFUL = {KeyState.ACTIVE: 0, KeyState.PENDING: 1, KeyState.RETIRED: 2}


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """One line of a roster: a public key, whose it is, its state, and since when it is listed."""

    public: PublicKey
    principal: str
    state: KeyState
    created: datetime.date
    comment: str = ""

    def __post_init__(self) -> None:
        check_principal(self.principal)
        comment = self.comment
        if comment != comment.strip() or not comment.isprintable() or len(comment) > _COMMENT_MAX:
            raise ConfigError(
                f"a comment in a roster is at most {_COMMENT_MAX} printable characters",
                rule="config.roster",
            )

    @classmethod
    def parse(cls, line: str) -> RosterEntry:
        """Return the entry that one line spells: key, principal, state, date, maybe a comment."""
        fields = line.strip().split(None, 4)
        if len(fields) < 4:
            raise ConfigError(
                "a roster line is: key, principal, state, date and, if you like, a comment",
                rule="config.roster",
            )
        try:
            state = KeyState(fields[2])
        except ValueError:
            raise ConfigError(
                "the state of a key is pending, active or retired", rule="config.roster"
            ) from None
        comment = fields[4] if len(fields) == 5 else ""
        return cls(PublicKey.parse(fields[0]), fields[1], state, _parse_date(fields[3]), comment)

    def text(self) -> str:
        fields = (self.public.text, self.principal, self.state.value, self.created.isoformat())
        return " ".join((*fields, self.comment) if self.comment else fields)


def _parse_date(text: str) -> datetime.date:
    try:
        # fromisoformat alone would take week dates and the basic format too.
        return datetime.date.fromisoformat(text if _DATE.match(text) else "")
    except ValueError:
        raise ConfigError(
            "a date in a roster is written like 2026-01-31", rule="config.roster"
        ) from None


class Roster:
    """The public keys of all principals. Immutable; a changed roster is a new value."""

    __slots__ = ("_active", "_entries")

    def __init__(self, entries: Iterable[RosterEntry] = ()) -> None:
        listed: dict[PublicKey, RosterEntry] = {}
        for entry in entries:
            if entry.public in listed:
                raise _listed_twice(listed[entry.public], entry)
            listed[entry.public] = entry
        if len(listed) > _ROSTER_MAX_ENTRIES:
            raise ConfigError(
                f"a roster lists at most {_ROSTER_MAX_ENTRIES} keys", rule="config.roster"
            )
        self._entries = listed
        self._active = {
            key: entry.principal for key, entry in listed.items() if entry.state is KeyState.ACTIVE
        }

    @property
    def entries(self) -> tuple[RosterEntry, ...]:
        return tuple(self._entries.values())

    def principal_of(self, public: PublicKey) -> str | None:
        """Return whose key *public* is; None unless it is listed and active."""
        return self._active.get(public)

    def keys_of(self, principal: str) -> tuple[PublicKey, ...]:
        """Return the active keys of *principal*, in the roster's order."""
        return tuple(key for key, name in self._active.items() if name == principal)

    def with_entry(self, entry: RosterEntry) -> Roster:
        """Return this roster with *entry* added, or in the place of the same key's entry."""
        known = self._entries.get(entry.public)
        if known is not None and known.principal != entry.principal:
            raise _two_principals(known, entry)
        return Roster({**self._entries, entry.public: entry}.values())

    def merged(self, other: Roster) -> Roster:
        """Return the keys of both. Where states differ, retired wins, then pending."""
        merged = dict(self._entries)
        for entry in other.entries:
            known = merged.setdefault(entry.public, entry)
            if known.principal != entry.principal:
                raise _two_principals(known, entry)
            if _CAREFUL[entry.state] > _CAREFUL[known.state]:
                merged[entry.public] = entry
        return Roster(merged.values())

    @classmethod
    def parse(cls, text: str, source: str = "roster") -> Roster:
        """Return the roster that *text* spells; empty lines and # comments don't count.

        :param source: name of the file, for errors.
        """
        if len(text) > _ROSTER_MAX_BYTES:
            raise _refused(source, "is too large for a roster", rule="config.roster")
        lines: dict[PublicKey, int] = {}
        entries: list[RosterEntry] = []
        for number, line in _meaningful(text):
            try:
                entry = RosterEntry.parse(line)
                if entry.public in lines:
                    raise _listed_twice(entries[lines[entry.public]], entry)
            except ConfigError as error:
                where = f"{_shown(source)} line {number}"
                raise ConfigError(
                    error.message, rule="config.roster", where=where, fix=error.fix
                ) from None
            lines[entry.public] = len(entries)
            entries.append(entry)
        return cls(entries)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Roster:
        """Read the roster at *path*, which only its owner, we or root, may be able to write."""
        data = _read_file(
            path,
            private=False,
            limit=_ROSTER_MAX_BYTES,
            rule="config.roster",
            make="safeser keys init",
        )
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise _refused(path, "is not UTF-8 text", rule="config.roster") from None
        return cls.parse(text, os.fspath(path))

    def text(self) -> str:
        """Return the roster as :meth:`parse` reads it, one key a line."""
        return "".join(entry.text() + "\n" for entry in self._entries.values())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Replace the roster at *path* whole, or leave it as it was."""
        try:
            target = Path(path)
            temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
            _write_new(temporary, self.text().encode("utf-8"), mode=0o644)
            try:
                temporary.replace(target)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
            _sync_directory(target.parent)
        except (OSError, ValueError) as error:
            raise _refused(
                path, f"cannot be written: {_reason(error)}", rule="config.roster"
            ) from None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Roster) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Roster({len(self._entries)} keys, {len(self._active)} active)"


def _meaningful(text: str) -> Iterator[tuple[int, str]]:
    # Only \n ends a line: str.splitlines would let U+2028 in a comment start a second entry.
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip() and not line.startswith("#"):
            yield number, line


def _listed_twice(first: RosterEntry, second: RosterEntry) -> ConfigError:
    if first.principal != second.principal:
        return _two_principals(first, second)
    return ConfigError(
        f"key {first.public.fingerprint} of {first.principal} is listed twice",
        rule="config.roster",
        fix="Keep one line for each key.",
    )


def _two_principals(first: RosterEntry, second: RosterEntry) -> ConfigError:
    return ConfigError(
        f"key {first.public.fingerprint} is listed for {first.principal} and {second.principal}",
        rule="config.roster",
        fix="Give each principal a key of its own.",
    )
