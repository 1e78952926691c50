"""Which principal a process is, under which policy, with which log: paths from Dask's settings.

The one rule: configuration carries paths and names, never key bytes, because deployment tools put
it on command lines and into logs. A path that does not work out stops the process before a socket
is opened.

Keys read here (``DASK_SAFESER__IDENTITY`` and so on in the environment)::

    safeser:
      identity: ~/keys/worker.key   # this process's private key
      policy: /etc/safeser/team.yaml  # a file, or the name of a ready policy
      shadow: null                  # the same, of a policy whose refusals are only recorded
      audit: /var/log/safeser       # folder for this process's log
      audit-files: {}               # when its files are rotated, compressed, removed; its heads
      roster: null                  # default: 'roster' beside the identity
      audit-key: null               # default: 'audit.key' beside the identity
      audit-outputs: null           # beside the folder: stdout, syslog, otlp; see monitoring.md
      own: null                     # modules whose classes count as the program's own
      expected-scheduler: null      # principal that must answer at the scheduler's address
      tokenizer: dask               # dask, or safeser: whose tokens Dask's keys are made of
      worker: {identity: ...}       # what differs for one role: scheduler, worker, nanny, client
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import dask
from distributed.client import Client, _close_global_client
from distributed.deploy.spec import close_clusters

from safeser.audit import AuditFiles, AuditLog
from safeser.channel import Channel, LiveFiles, unwatch, watch
from safeser.errors import AuditError, ConfigError
from safeser.families.registered.program import name_modules
from safeser.gate.values import check_principal
from safeser.identity import Identity, Roster
from safeser.operations import Server
from safeser.policy import Policy, ready_policies
from safeser.policy.source.faults import did_you_mean, shown

if TYPE_CHECKING:
    from safeser.audit.outputs.feed import Outputs

ROLES = tuple(server.value for server in Server)


@dataclass(frozen=True, slots=True)
class Settings:
    """The files of one role, and the principal that it means to reach; paths and names only."""

    identity: str | None = None
    policy: str | None = None
    audit: str | None = None
    roster: str | None = None
    audit_key: str | None = None
    expected_scheduler: str | None = None
    shadow: str | None = None
    audit_outputs: str | None = None
    own: str | None = None
    audit_files: AuditFiles | None = None

    def __post_init__(self) -> None:
        if self.expected_scheduler is not None:
            check_principal(self.expected_scheduler)
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, AuditFiles):
                continue
            if value == "":
                # A variable of a shell's that is not set reads so; no default is what was meant.
                raise ConfigError(
                    f"safeser.{entry.name.replace('_', '-')} is empty",
                    rule="config.settings",
                    fix="Give it a value, or leave the setting out.",
                )
            if value is not None and (not isinstance(value, str) or "\n" in value):
                raise ConfigError(
                    f"safeser.{entry.name.replace('_', '-')} must be a path",
                    rule="config.settings",
                    fix="Name a file; never put a key itself into configuration.",
                )

    def updated(self, values: Mapping[str, Any]) -> Settings:
        """Return these settings with *values*, as Dask's configuration spells them, on top."""
        known = {entry.name for entry in fields(self)}
        named = {str(key).replace("-", "_"): value for key, value in values.items()}
        unknown = sorted(set(named) - known)
        if unknown:
            name = unknown[0].replace("_", "-")
            raise ConfigError(
                f"there is no setting {shown(f'safeser.{name}')}",
                rule="config.settings",
                fix=did_you_mean(name, [each.replace("_", "-") for each in known]),
            )
        for name in ("audit_outputs", "own"):
            if isinstance(named.get(name), list | tuple):
                named[name] = ", ".join(map(str, named[name])) or None
        files = named.get("audit_files")
        if files is not None and not isinstance(files, AuditFiles):
            if not isinstance(files, Mapping):
                raise ConfigError(
                    "the configuration section 'safeser.audit-files' must be a mapping",
                    rule="config.audit-files",
                )
            named["audit_files"] = AuditFiles.parse(files)
        return replace(self, **{key: value for key, value in named.items() if value is not None})

    def require_complete(self, role: str) -> None:
        """Raise :class:`ConfigError` unless a process in *role* can start with these settings."""
        self.require_identity(role)
        if self.audit is None:
            raise ConfigError(
                f"this {role} has no audit log: safeser.audit is not set",
                rule="config.audit",
                fix="Set DASK_SAFESER__AUDIT to a folder; decisions must be recorded.",
            )

    def require_identity(self, role: str) -> None:
        """Raise :class:`ConfigError` if these settings name no key."""
        if self.identity is None:
            raise ConfigError(
                f"this {role} has no identity: safeser.identity is not set",
                rule="config.identity",
                fix="Set DASK_SAFESER__IDENTITY to the key file that the cluster's operator gave"
                " you; for a cluster of your own, 'safeser keys init DIR' makes keys."
                + (" Set DASK_SAFESER__AUDIT to a folder, too." if self.audit is None else ""),
            )

    @property
    def identity_path(self) -> Path:
        """Where the private key is; call it where one is set."""
        return Path(self.identity or "").expanduser()

    @property
    def roster_path(self) -> Path | None:
        """Where the roster is; None where none is named and none lies beside the identity."""
        if self.roster:
            return Path(self.roster).expanduser()
        beside = self.identity_path.with_name("roster")
        return beside if beside.exists() else None

    @property
    def audit_key_path(self) -> Path:
        """Where the key of the log is: beside the identity, if none is named."""
        if self.audit_key:
            return Path(self.audit_key).expanduser()
        return self.identity_path.with_name("audit.key")

    def absolute(self) -> dict[str, str]:
        """Return what is set, with paths that mean the same in every folder."""
        found = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        portable = {name: value for name, value in found.items() if value is not None}
        for name, value in portable.items():
            if isinstance(value, AuditFiles):
                portable[name] = repr(asdict(value))  # which Dask reads as the mapping that it is
            elif name not in _NAMES and not (name in _POLICIES and value in ready_policies()):
                portable[name] = str(Path(value).expanduser().absolute())
        return portable


#: Settings that are no paths, and those that may be the name of a ready policy.
_NAMES = frozenset({"audit_outputs", "expected_scheduler", "own"})
_POLICIES = ("policy", "shadow")


def settings_for(role: str, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Return what Dask's configuration, then *overrides*, say for *role*."""
    section = dask.config.get("safeser", {}) or {}
    if not isinstance(section, Mapping):
        raise ConfigError("the configuration section 'safeser' must be a mapping")
    shared = {key: value for key, value in section.items() if key not in (*ROLES, _TOKENIZER)}
    own = section.get(role) or {}
    if not isinstance(own, Mapping):
        raise ConfigError(f"the configuration section 'safeser.{role}' must be a mapping")
    return Settings().updated(shared).updated(own).updated(overrides or {})


#: The setting of a process, whatever its roles.
_TOKENIZER = "tokenizer"
_TOKENIZERS = ("dask", "safeser")


def uses_own_tokenizer() -> bool:
    """Tell whether Dask's configuration has :func:`safeser.tokenize` make Dask's tokens.

    :raises ConfigError: if it names another tokenizer.
    """
    section = dask.config.get("safeser", {}) or {}
    chosen = section.get(_TOKENIZER) if isinstance(section, Mapping) else None
    if chosen is not None and chosen not in _TOKENIZERS:
        raise ConfigError(
            f"safeser.tokenizer is {shown(str(chosen))}",
            rule="config.settings",
            fix=f"Write {' or '.join(_TOKENIZERS)}.",
        )
    return chosen == "safeser"


_channels: dict[Settings, Channel] = {}
_files: dict[Settings, LiveFiles] = {}
_lock = threading.Lock()
_pid = os.getpid()


def channel_for(role: str, overrides: Mapping[str, Any] | None = None) -> Channel:
    """Return this process's channel in *role*: made once, then shared.

    :raises ConfigError: naming the setting, file and remedy, if anything is missing or wrong.
    """
    global _pid  # noqa: PLW0603 - a forked child must not share its parent's channels
    # The expected peer is no part of the identity: one identity has one channel and one log.
    settings = replace(settings_for(role, overrides), expected_scheduler=None)
    with _lock:
        if os.getpid() != _pid:
            _channels.clear()
            _files.clear()
            _pid = os.getpid()
        channel = _channels.get(settings)
        if channel is None:
            channel = _channels[settings] = _open(role, settings)
            files = _files[settings] = LiveFiles(
                channel,
                identity=settings.identity_path,
                policy=settings.policy or "default",
                roster=settings.roster_path,
                shadow=settings.shadow,
            )
            watch(files)
        return channel


#: Seconds that all clients together may keep a process that ends; Dask gives its own as long.
_CLOSING_WAIT = 3.0
#: Seconds that each may take once those are over.
_LEAST_WAIT = 0.2

#: Clients of the process that this one was forked from, whose loops do not run here.
_inherited: weakref.WeakSet[Client] = weakref.WeakSet()


def _inherit() -> None:
    _inherited.update(tuple(Client._instances))


os.register_at_fork(after_in_child=_inherit)


def _close_clients() -> None:
    """Close all clients; Dask closes the one that was made last.

    What arrives for a client once the log is closed is refused, which would be shown to the user
    of a program that has done its work.
    """
    left = _CLOSING_WAIT
    for client in tuple(Client._instances):
        # The loop of an asynchronous client has ended with the coroutine that made it. One that
        # Dask's handler has waited for in vain is closing still.
        if client._asynchronous or client.status == "closing" or client in _inherited:
            continue
        began = time.monotonic()
        try:
            client.close(timeout=max(left, _LEAST_WAIT))
        except TimeoutError:
            left -= time.monotonic() - began
        except RuntimeError:
            continue


def open_channels() -> tuple[Channel, ...]:
    """Return the channels that this process has made, one for each of its identities."""
    with _lock:
        return tuple(_channels.values()) if os.getpid() == _pid else ()


def close_channels_in(directory: Path) -> None:
    """Forget the channels whose keys lie below *directory*, and close their logs."""
    with _lock:
        inside = [
            settings
            for settings in _channels
            if settings.identity is not None
            and Path(settings.identity).expanduser().is_relative_to(directory)
        ]
        channels = [_channels.pop(settings) for settings in inside]
        for settings in inside:
            unwatch(_files.pop(settings))
    for channel in channels:
        if isinstance(channel.audit, AuditLog):
            channel.audit.close()


class _NoLog:
    """A sink that takes nothing: whatever must be recorded first is refused."""

    def record(self, *_: Any, **__: Any) -> NoReturn:
        raise AuditError("this channel is for looking at settings only", rule="audit.none")

    record_all = count = record


def unrecorded_channel(role: str, overrides: Mapping[str, Any] | None = None) -> Channel | None:
    """Return the channel of *role* without its log; None if no identity is set.

    A nanny asks for its worker's before it starts it. The channel can decide and can let nothing
    through.

    :raises ConfigError: as :func:`channel_for` in that role would.
    """
    settings = settings_for(role, overrides)
    if settings.identity is None:
        return None
    identity, policy, roster = _read(settings)
    return Channel(identity=identity, policy=policy, audit=_NoLog(), roster=roster)


def _read(settings: Settings) -> tuple[Identity, Policy, Roster | None]:
    identity = Identity.load(settings.identity_path)
    policy = Policy.load(settings.policy or "default")
    roster = settings.roster_path
    return identity, policy, None if roster is None else Roster.load(roster)


def open_log(settings: Settings, principal: str, policy: Policy) -> AuditLog:
    """Open the log that *settings* name, by their log key or the one beside their identity."""
    assert settings.audit is not None
    outputs: Outputs | None = None
    if settings.audit_outputs is not None:  # separated by commas or spaces
        from safeser.audit.outputs import configured  # noqa: PLC0415 - few processes have any

        outputs = configured.outputs(settings.audit_outputs.replace(",", " ").split())
    return AuditLog.open(
        Path(settings.audit).expanduser(),
        key=settings.audit_key_path,
        principal=principal,
        policy=(policy.name, policy.revision, policy.sha256),
        outputs=outputs,
        files=settings.audit_files or AuditFiles(),
    )


def _open(role: str, settings: Settings) -> Channel:
    settings.require_complete(role)
    name_modules((settings.own or "").replace(",", " ").split())
    identity, policy, roster = _read(settings)
    shadow = None if settings.shadow is None else Policy.load(settings.shadow)
    if settings.audit_key is None and not settings.audit_key_path.exists():
        raise ConfigError(
            f"this {role} has no log key: there is none beside its identity",
            rule="config.audit-key",
            where=str(settings.audit_key_path),
            fix="Put one there, or set DASK_SAFESER__AUDIT_KEY to its file. 'safeser keys new'"
            " makes a log key beside the key that it makes.",
        )
    audit = open_log(settings, identity.principal, policy)
    # Clusters and clients are closed before the log: what they still do is recorded, too.
    # Handlers run in the reverse order of registration, and Dask's were registered first.
    atexit.register(_close_clients)
    for handler in (_close_global_client, close_clusters):
        atexit.unregister(handler)
        atexit.register(handler)
    try:
        return Channel(identity=identity, policy=policy, audit=audit, roster=roster, shadow=shadow)
    except BaseException:
        audit.close()
        raise
