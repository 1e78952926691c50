"""What ``safeser.Client`` does where its address is ``tcp://`` or ``tls://``.

The one rule: the schemes of this process are guarded before anything connects, and nothing that
speaks them without a guard may be open already.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distributed import Client, Nanny, Scheduler, Worker
from distributed.comm import registry
from distributed.core import Status
from distributed.security import Security as DaskSecurity

from safeser.dask import require_distributed
from safeser.dask.clients.joblib_calls import register_backend
from safeser.dask.log_text import escape_logs
from safeser.dask.patches import install
from safeser.dask.stock.comm import GUARDED, GuardedBackend
from safeser.dask.stock.settings import GuardedSecurity, guarded_security
from safeser.dask.transport.other_schemes import Backends, record_for
from safeser.errors import ConfigError

__all__ = ["guard", "guarded_scheme"]

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
