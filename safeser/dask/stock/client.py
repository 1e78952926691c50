"""What ``safeser.Client`` does where its address is ``tcp://`` or ``tls://``.

The one rule: the schemes of this process are guarded before anything connects, and nothing that
speaks them without a guard may be open already.

A guarded client needs no keys, since its cluster does not authenticate either; without any setting
it decides by the ready policy ``stock-cluster``. A policy that is set replaces that one, and a log
that is set must be writable; there is no fallback.
"""

from __future__ import annotations

import logging
import ssl
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from distributed import Client, Nanny, Scheduler, Worker
from distributed.comm import registry
from distributed.core import Status
from distributed.security import Security as DaskSecurity

from safeser.channel import AuditSink
from safeser.dask import require_distributed
from safeser.dask.clients.joblib_calls import register_backend
from safeser.dask.log_text import escape_logs
from safeser.dask.patches import install
from safeser.dask.security import Security
from safeser.dask.settings import Settings, open_log, settings_for
from safeser.dask.stock.comm import GUARDED, Guard, GuardedBackend
from safeser.dask.transport.other_schemes import Backends, record_for
from safeser.errors import ConfigError
from safeser.gate.values import UNKNOWN, Context, Kind
from safeser.identity import Identity
from safeser.policy import Policy

__all__ = ["DESERIALIZERS", "GuardedSecurity", "guard", "guarded_scheme", "guarded_security"]

logger = logging.getLogger("safeser.dask")

#: What a guarded client can open, and what it asks the cluster for.
DESERIALIZERS = ("dask", "msgpack")

#: The ready policy, and its name for this process.
_POLICY, _PRINCIPAL = "stock-cluster", "client"

#: More than there are rules by which something from a stock cluster is refused.
_RULES = 100


class _Unkept:
    """The log of a process that has none configured: refusals are warnings of ``safeser.dask``.

    It keeps their number, which a client shows.
    """

    def __init__(self) -> None:
        self.refusals: Counter[str] = Counter()

    def record(self, event: Mapping[str, Any], /) -> None:
        if not event["permitted"]:
            self._note(event["rule"])

    def record_all(self, events: Sequence[Mapping[str, Any]], /) -> None:
        for event in events:
            self.record(event)

    def count(
        self,
        sender: str,
        recipient: str,
        operation: str,
        rule: str,
        permitted: bool,
        *,
        times: int = 1,
        kind: str = "admin",
    ) -> None:
        if not permitted:
            self._note(rule, times)

    def _note(self, rule: str, times: int = 1) -> None:
        # A rule may be a peer's word, where its error is what was refused.
        known = rule in self.refusals or len(self.refusals) < _RULES
        self.refusals[rule if known else "other"] += times


class GuardedSecurity(DaskSecurity):  # type: ignore[misc]  # distributed ships no types
    """The security that Dask's client sees: TLS as its user set it, and the guard."""

    __slots__ = ("_inner", "guard")

    def __init__(self, inner: DaskSecurity, guard: Guard) -> None:
        super().__init__(require_encryption=guard.scheme == "tls")
        self._inner = inner
        self.guard = guard

    def get_connection_args(self, role: str) -> dict[str, Any]:
        return {**_tls_arguments(self._inner), "guarded": self.guard}

    def __repr__(self) -> str:
        return f"<guarded {self.guard.scheme}://, policy {self.guard.policy.name!r}>"


def guarded_security(
    scheme: str, security: DaskSecurity | None, deserializers: Sequence[str] | None
) -> GuardedSecurity:
    """Return the security of a guarded client on *scheme*.

    :param security: a :class:`distributed.Security` for its TLS, a :class:`safeser.Security` for
        TLS, policy and log, or None for Dask's configuration.
    :param deserializers: families to open; None for all that a guarded client can.
    :raises ConfigError: if TLS, policy or log are not what they must be.
    """
    asked = DESERIALIZERS if deserializers is None else tuple(deserializers)
    for family in asked:
        if family not in DESERIALIZERS:
            raise ConfigError(
                f"family {family} never passes from a cluster without safeser",
                rule="config.guarded",
                fix="Write deserializers=['dask', 'msgpack'].",
            )
    inner = DaskSecurity() if security is None else security
    own = inner.deserializers if isinstance(inner, Security) else None
    if own is not None:
        asked = tuple(family for family in asked if family in own)
    if scheme == "tls":
        _require_tls(inner)
    overrides = inner.overrides("client") if isinstance(inner, Security) else {}
    policy, principal, audit = _configured(scheme, settings_for("client", overrides))
    return GuardedSecurity(inner, Guard(scheme, principal, policy, audit, asked))


def _tls_arguments(security: DaskSecurity) -> dict[str, Any]:
    if isinstance(security, Security):
        return security.tls_arguments()
    arguments: dict[str, Any] = security.get_connection_args("client")
    return arguments


def _require_tls(security: DaskSecurity) -> None:
    context = _tls_arguments(security).get("ssl_context")
    if not isinstance(context, ssl.SSLContext):
        raise ConfigError(
            "tls:// needs certificates, and none are set",
            rule="config.tls",
            fix="Pass security=distributed.Security(tls_ca_file=..., tls_client_cert=...,"
            " tls_client_key=...), or set distributed.comm.tls in Dask's configuration.",
        )
    if context.verify_mode is not ssl.CERT_REQUIRED:
        raise ConfigError(
            "this TLS context accepts any server",
            rule="config.tls",
            fix="Name the authority that signed the cluster's certificate, tls_ca_file=....",
        )


_logs: dict[Settings, AuditSink] = {}
_lock = threading.Lock()


def _configured(scheme: str, settings: Settings) -> tuple[Policy, str, AuditSink]:
    policy = Policy.load(settings.policy or _POLICY)
    key = settings.identity
    own = None if key is None else Identity.load(Path(key).expanduser()).principal
    principal = own if own is not None and own in policy.principals else _PRINCIPAL
    hears = Context(UNKNOWN, principal, Kind.DATA, transport=scheme)
    if principal not in policy.principals or policy.match(hears) is None:
        raise ConfigError(
            f"policy {policy.name!r} lets {own or principal} read nothing from a cluster without"
            " safeser",
            rule="config.guarded",
            fix=f"Add a context with 'sender: unknown' and 'recipient: {own or principal}', or"
            f" decide by the ready policy: safeser.Security(policy={_POLICY!r}).",
        )
    with _lock:
        if settings not in _logs:
            _logs[settings] = _log(settings, principal, policy)
        return policy, principal, _logs[settings]


def _log(settings: Settings, principal: str, policy: Policy) -> AuditSink:
    if settings.audit is None:
        logger.info("No audit log is set: what a guarded client refuses is only logged here.")
        return _Unkept()
    if settings.audit_key is None and settings.identity is None:
        raise ConfigError(
            "the audit log has no key",
            rule="config.audit",
            fix="Set safeser.audit-key to the path of one; 'safeser keys init DIR' makes it.",
        )
    return open_log(settings, principal, policy)


# --- the schemes of this process -----------------------------------------------------------------

_OVER = ("closed", "closing")


def guarded_scheme(address: Any) -> str | None:
    """Return the scheme of *address* if a guarded client speaks it, else None."""
    scheme = address.partition("://")[0] if isinstance(address, str) else ""
    return scheme if scheme in GUARDED else None


def guard(
    scheme: str, security: DaskSecurity | None, deserializers: Sequence[str] | None
) -> GuardedSecurity:
    """Guard this process's schemes; return the security for a client on *scheme*.

    :raises ConfigError: if settings are wrong, or something here speaks without a guard already.
    """
    require_distributed()
    escape_logs()
    register_backend()
    made = guarded_security(scheme, security, deserializers)
    _refuse_unguarded()
    record_for(made.guard.principal, made.guard.audit)
    guard_schemes({name: GuardedBackend(name) for name in GUARDED})
    return made


def guard_schemes(guarded: Mapping[str, Any]) -> None:
    """Close every scheme here but ``safeser``, and put *guarded* in place of some."""
    install()
    assert isinstance(registry.backends, Backends)
    registry.backends.guard(guarded)


def _refuse_unguarded() -> None:
    """Refuse to guard schemes that objects of this process use: they would stop working."""
    for kind, instances in (
        ("a worker", Worker._instances),
        ("a nanny", Nanny._instances),
        ("a scheduler", Scheduler._instances),
        ("a client without safeser", Client._instances),
    ):
        if any(_is_unguarded(each) for each in list(instances)):
            raise ConfigError(
                f"{kind} is open in this process, and would not be able to connect any more",
                rule="scheme.in-use",
                fix="Open guarded clients in a process of their own, or close it first.",
            )


def _is_unguarded(server: Any) -> bool:
    status = server.status.name if isinstance(server.status, Status) else server.status
    if status in _OVER:
        return False
    arguments = getattr(server, "connection_args", None)
    return not (isinstance(arguments, dict) and arguments.keys() & {"guarded", "safeser"})
