"""A :class:`distributed.Security` that says which identity, policy and log a process uses.

The one rule: it carries paths, and pickles the same paths, never keys.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from distributed.protocol.serialize import families as distributed_families
from distributed.security import Security as _DaskSecurity

from safeser.audit import AuditFiles
from safeser.channel import Channel
from safeser.dask.settings import ROLES, Settings, settings_for
from safeser.errors import ConfigError
from safeser.families.registered.own import own_families
from safeser.gate.values import FAMILIES, Context, Kind
from safeser.policy.source.faults import did_you_mean, shown

__all__ = ["Security", "checked_families", "require_listed"]


_TLS = ("tls_ca_file", "tls_client_cert", "tls_client_key")


class Security(_DaskSecurity):  # type: ignore[misc]  # distributed ships no types
    """Security of a cluster on ``safeser://``: paths for every role, and what differs for one.

    :param identity: path of this process's private key.
    :param policy: path of a policy, or the name of a ready one.
    :param shadow: the same, of a policy whose refusals are recorded and refuse nothing.
    :param audit: folder for audit logs.
    :param roster: path of the roster; default ``roster`` beside the identity.
    :param audit_key: path of the log's key; default ``audit.key`` beside the identity.
    :param audit_files: when files of the log are rotated, compressed and removed, and where its
        heads go: :class:`safeser.audit.AuditFiles`, or a mapping such as
        ``{"rotate_age": "1d", "keep_age": "90d"}``, as Dask's configuration has it.
    :param roles: per role (``"scheduler"``, ``"worker"``, ``"nanny"``, ``"client"``) a mapping of
        the same names that overrides the above.
    :param expected_scheduler: principal that client, workers and nannies must reach at the
        scheduler's address, where another insider might have taken its place; None accepts any
        principal that the policy lets them meet.
    :param deserializers: families that this side is willing to open; narrows the policy.
    :param own: loaded modules whose classes count as the program's own, under a policy that says
        ``classes: own``, besides ``__main__`` and those beside its file.
    :param tls_ca_file: certificate of the authority of a ``tls://`` cluster without safeser; with
        it *tls_client_cert* and *tls_client_key*, as :class:`distributed.Security` has them.
    :raises ConfigError: if an argument or a role is none that there is.

    Everything absent comes from Dask's configuration, section ``safeser``.
    """

    __slots__ = ("_deserializers", "_roles", "_scheduler_at", "_shared", "_tls")

    def __init__(
        self,
        *,
        identity: str | None = None,
        policy: str | None = None,
        audit: str | None = None,
        roster: str | None = None,
        audit_key: str | None = None,
        audit_files: AuditFiles | Mapping[str, object] | None = None,
        roles: Mapping[str, Mapping[str, Any]] | None = None,
        expected_scheduler: str | None = None,
        shadow: str | None = None,
        deserializers: Sequence[str] | None = None,
        own: Sequence[str] | None = None,
        tls_ca_file: str | None = None,
        tls_client_cert: str | None = None,
        tls_client_key: str | None = None,
        **unknown: object,
    ) -> None:
        given = {
            "identity": identity,
            "policy": policy,
            "audit": audit,
            "roster": roster,
            "audit_key": audit_key,
            "expected_scheduler": expected_scheduler,
            "shadow": shadow,
            "own": ", ".join([own] if isinstance(own, str) else own or ()) or None,
        }
        if unknown:
            raise ConfigError(
                f"safeser.Security takes no argument {shown(min(unknown))}",
                rule="config.security",
                fix=did_you_mean(
                    min(unknown), [*given, "audit_files", "roles", "deserializers", *_TLS]
                ),
            )
        files = zip(_TLS, (tls_ca_file, tls_client_cert, tls_client_key), strict=True)
        self._tls = {name: str(path) for name, path in files if path is not None}
        super().__init__(require_encryption=False)
        for name, path in self._tls.items():  # it refuses names that this class's slots lack
            setattr(self, name, path)
        self._shared: dict[str, Any] = {
            key: str(value) for key, value in given.items() if value is not None
        }
        if audit_files is not None:
            self._shared["audit_files"] = (
                Settings().updated({"audit_files": audit_files}).audit_files
            )
        self._roles = {role: dict(values) for role, values in (roles or {}).items()}
        for role, values in self._roles.items():
            if role not in ROLES:
                raise _no_such_role(str(role))
            Settings().updated(values)
        Settings().updated(self._shared)
        self._scheduler_at: str | None = None
        self._deserializers = checked_families(deserializers, argument="deserializers")

    def overrides(self, role: str) -> dict[str, Any]:
        """Return the settings that this object lays over Dask's configuration for *role*."""
        return {**self._shared, **self._roles.get(role, {})}

    def narrowed(
        self, deserializers: Sequence[str] | None, *, scheduler_at: str | None = None
    ) -> Security:
        """Return a copy for a client that opens only *deserializers*, of those that this has.

        :param scheduler_at: ``host:port`` of the scheduler; only there is it expected. A client
            also connects to workers.
        """
        own = self._deserializers
        if own is not None:
            asked = own if deserializers is None else deserializers
            deserializers = [family for family in own if family in asked]
        return _rebuild(
            self._shared, self._roles, scheduler_at or self._scheduler_at, deserializers, self._tls
        )

    @property
    def deserializers(self) -> tuple[str, ...] | None:
        """The families that this side is willing to open; None for what policy permits."""
        return self._deserializers

    def tls_arguments(self) -> dict[str, Any]:
        """Return what connects to ``tls://``, for a guarded client; nothing else speaks it."""
        arguments: dict[str, Any] = super().get_connection_args("client")
        return arguments

    def get_tls_config_for_role(self, role: str) -> dict[str, Any]:
        """Return the TLS files that are set: dask-jobqueue writes each entry into a job script."""
        found = super().get_tls_config_for_role(role)
        return {name: value for name, value in found.items() if value is not None}

    def exports(self, *roles: str) -> list[str]:
        """Return shell lines that give a process on another machine this object's settings.

        They are for dask-jobqueue's ``job_script_prologue``, which is what a job inherits surely;
        paths in them are absolute, and must lead to the same files there.

        :param roles: default: those that a job has, ``"worker"`` and ``"nanny"``.
        :raises ConfigError: if no identity or log is set for one of them.
        """
        lines = []
        for role in roles or ("worker", "nanny"):
            if role not in ROLES:
                raise _no_such_role(role)
            settings = settings_for(role, self.overrides(role))
            settings.require_complete(role)
            prefix = f"DASK_SAFESER__{role.upper()}__"
            lines += [
                f"export {prefix}{name.upper()}={shlex.quote(value)}"
                for name, value in settings.absolute().items()
            ]
        return lines

    def _arguments(self, role: str) -> dict[str, Any]:
        # Nannies ask for the worker's arguments; which of the two runs here is known only to the
        # listener, so both sets travel and the comm picks.
        roles = {name: self.overrides(name) for name in ROLES}
        return {
            "role": role,
            "roles": roles,
            # Workers and nannies know where their scheduler is; a client alone must be told.
            "scheduler_at": self._scheduler_at if role == "client" else None,
            "deserializers": self._deserializers if role == "client" else None,
        }

    def get_connection_args(self, role: str) -> dict[str, Any]:
        if self._tls:
            raise ConfigError(
                "TLS files are for a guarded client's tls:// address",
                rule="config.tls",
                fix="safeser:// authenticates by identities; leave the files out.",
            )
        arguments: dict[str, Any] = super().get_connection_args(role)
        return {**arguments, "safeser": self._arguments(role)}

    def get_listen_args(self, role: str) -> dict[str, Any]:
        arguments: dict[str, Any] = super().get_listen_args(role)
        return {**arguments, "safeser": self._arguments(role)}

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            _rebuild,
            (self._shared, self._roles, self._scheduler_at, self._deserializers, self._tls),
        )

    def __repr__(self) -> str:
        shared = ", ".join(f"{key}={value!r}" for key, value in self._shared.items())
        return f"safeser.Security({shared})"

    def _repr_html_(self) -> str:
        return f"<code>{self!r}</code>"


def _no_such_role(role: str) -> ConfigError:
    return ConfigError(f"there is no role {shown(role)}", fix=f"Roles are {', '.join(ROLES)}.")


def _rebuild(
    shared: dict[str, Any],
    roles: dict[str, dict[str, Any]],
    scheduler_at: str | None,
    deserializers: Sequence[str] | None,
    tls: dict[str, Any],
) -> Security:
    made = Security(**shared, roles=roles, deserializers=deserializers, **tls)
    made._scheduler_at = scheduler_at
    return made


def checked_families(families: Sequence[str] | None, *, argument: str) -> tuple[str, ...] | None:
    """Return *families* if each of them exists: a misspelt one would silently remove a family.

    :raises ConfigError: naming the nearest family.
    """
    if families is None:
        return None
    if isinstance(families, str):
        raise ConfigError(
            f"{argument} is a list of families, not a string",
            rule="config.family",
            fix=f"Write {argument}=[...] with names among {', '.join(FAMILIES)}.",
        )
    for name in families:
        if name not in FAMILIES and own_families.find(str(name)) is None:
            raise ConfigError(
                f"{argument} names {shown(str(name))}, which is no serialization family",
                rule="config.family",
                fix=_of_distributed(str(name)) or did_you_mean(str(name), FAMILIES),
            )
    return tuple(families)


def _of_distributed(name: str) -> str:
    """Return what to do about a family that distributed's own function registered."""
    if name not in distributed_families:
        return ""
    return (
        "It was registered with distributed's function, which safeser does not use: call"
        " safeser.register_serialization_family, and have the policy list it."
    )


def require_listed(channel: Channel, families: Sequence[str] | None, *, argument: str) -> None:
    """Refuse *families* of which policy lets this process send, or open, none to or from any peer.

    Without it another family would be taken in their place.

    :param argument: ``"serializers"`` for what is sent, ``"deserializers"`` for what is opened.
    :raises ConfigError: naming the first such family and those that the policy lists.
    """
    if families is None:
        return
    own, policy = channel.identity.principal, channel.policy
    sealing = argument == "serializers"
    pairs = [(own, peer) if sealing else (peer, own) for peer in policy.counterparts(own)]
    listed = {"msgpack", "error"}  # what administration and failures travel as
    for kind, same_host, pair in product(Kind, (True, False), sorted(pairs)):
        context = Context(*pair, kind, transport="safeser", same_host=same_host)
        listed.update(policy.bound(context, sealing=sealing).families)
    if "cloudpickle" in listed:
        listed.add("pickle")  # Dask has one word for both
    named = ", ".join(sorted(listed - {"error"}))
    for name in families:
        if name not in listed:
            raise ConfigError(
                f"{argument} names {name}, which policy {policy.name!r} does not let {own}"
                f" {'send' if sealing else 'open'}; it lists {named}",
                rule=f"caller.{argument}",
                fix=f"Take {name} out of {argument}, or ask the operator to list it in a context"
                f" {'from' if sealing else 'to'} {own}.",
            )
