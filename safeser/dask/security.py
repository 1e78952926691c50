"""A :class:`distributed.Security` that says which identity, policy and log a process uses.

The one rule: it carries paths, and pickles the same paths, never keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distributed.security import Security as _DaskSecurity

from safeser.dask.settings import ROLES, Settings
from safeser.errors import ConfigError

__all__ = ["Security"]


class Security(_DaskSecurity):  # type: ignore[misc]  # distributed ships no types
    """Security of a cluster on ``safeser://``: paths for every role, and what differs for one.

    :param identity: path of this process's private key.
    :param policy: path of a policy, or the name of a ready one.
    :param audit: folder for audit logs.
    :param roster: path of the roster; default ``roster`` beside the identity.
    :param audit_key: path of the log's key; default ``audit.key`` beside the identity.
    :param roles: per role (``"scheduler"``, ``"worker"``, ``"nanny"``, ``"client"``) a mapping of
        the same names that overrides the above.
    :param expected_scheduler: principal that :class:`safeser.Client` must reach at the scheduler's
        address, where another insider might have taken its place;
        None accepts whoever the policy lets it meet.
    :param deserializers: families that this side is willing to open; narrows the policy.

    Everything absent comes from Dask's configuration, section ``safeser``.
    """

    __slots__ = ("_deserializers", "_expected_scheduler", "_roles", "_scheduler_at", "_shared")

    def __init__(
        self,
        *,
        identity: str | None = None,
        policy: str | None = None,
        audit: str | None = None,
        roster: str | None = None,
        audit_key: str | None = None,
        roles: Mapping[str, Mapping[str, str]] | None = None,
        expected_scheduler: str | None = None,
        deserializers: Sequence[str] | None = None,
    ) -> None:
        super().__init__(require_encryption=False)
        given = {
            "identity": identity,
            "policy": policy,
            "audit": audit,
            "roster": roster,
            "audit_key": audit_key,
        }
        self._shared = {key: str(value) for key, value in given.items() if value is not None}
        self._roles = {role: dict(values) for role, values in (roles or {}).items()}
        for role, values in self._roles.items():
            if role not in ROLES:
                raise ConfigError(
                    f"there is no role {role!r}", fix=f"Roles are {', '.join(ROLES)}."
                )
            Settings().updated(values)
        self._expected_scheduler = expected_scheduler
        self._scheduler_at: str | None = None
        self._deserializers = None if deserializers is None else tuple(deserializers)

    def overrides(self, role: str) -> dict[str, str]:
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
        copy = Security(
            **self._shared,
            roles=self._roles,
            expected_scheduler=self._expected_scheduler,
            deserializers=deserializers,
        )
        copy._scheduler_at = scheduler_at or self._scheduler_at
        return copy

    def _arguments(self, role: str) -> dict[str, Any]:
        # Nannies ask for the worker's arguments; which of the two runs here is known only to the
        # listener, so both sets travel and the comm picks.
        roles = {name: self.overrides(name) for name in ROLES}
        return {
            "role": role,
            "roles": roles,
            "expected": self._expected() if role == "client" else {},
            "deserializers": self._deserializers if role == "client" else None,
        }

    def _expected(self) -> dict[str, str]:
        """Return which principal must be at which address."""
        if self._expected_scheduler is None or self._scheduler_at is None:
            return {}
        return {self._scheduler_at: self._expected_scheduler}

    def get_connection_args(self, role: str) -> dict[str, Any]:
        arguments: dict[str, Any] = super().get_connection_args(role)
        return {**arguments, "safeser": self._arguments(role)}

    def get_listen_args(self, role: str) -> dict[str, Any]:
        arguments: dict[str, Any] = super().get_listen_args(role)
        return {**arguments, "safeser": self._arguments(role)}

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            _rebuild,
            (self._shared, self._roles, self._expected_scheduler, self._deserializers),
        )

    def __repr__(self) -> str:
        shared = ", ".join(f"{key}={value!r}" for key, value in self._shared.items())
        return f"safeser.Security({shared})"

    def _repr_html_(self) -> str:
        return f"<code>{self!r}</code>"


def _rebuild(
    shared: dict[str, str],
    roles: dict[str, dict[str, str]],
    expected_scheduler: str | None,
    deserializers: Sequence[str] | None,
) -> Security:
    return Security(
        **shared, roles=roles, expected_scheduler=expected_scheduler, deserializers=deserializers
    )
