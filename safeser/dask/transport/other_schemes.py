"""The other comm backends, closed: a process on ``safeser://`` speaks no other scheme.

The one rule: an address in a message chooses the transport in Dask, so every transport that has no
envelope must be unable to connect or listen. Measured: a worker whose own links were all signed was
told to gather from ``tcp://`` and ran the pickle that came back.

The stated exception is a process with a guarded client: there ``tcp`` and ``tls`` connect for that
client alone, and read as it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from distributed.comm import registry

from safeser.audit.record import printable
from safeser.channel import AuditSink
from safeser.channel.records import note_refusal
from safeser.dask.settings import open_channels
from safeser.errors import ConfigError
from safeser.gate.values import UNKNOWN, Context, Kind

__all__ = ["Backends", "note_left", "record_for", "sealed"]

_KNOWN = ("tcp", "tls", "ws", "wss", "inproc", "ucx", "ucxx")
_OWN = "safeser"


class _Sealed(registry.Backend):  # type: ignore[misc]  # distributed ships no types
    """A backend that refuses whatever it is asked."""

    def __init__(self, scheme: str) -> None:
        self._scheme = scheme

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        error = ConfigError(
            f"{self._scheme}:// is closed: this process speaks safeser:// only",
            rule="scheme.sealed",
            fix="Use a safeser:// address, or another process for the other cluster.",
        )
        note_left(error, self._scheme)
        raise error

    get_connector = get_listener = _refuse
    get_address_host = resolve_address = get_local_address_for = _refuse


#: Who this process is to clusters without safeser, and where that is recorded.
_guarded: dict[tuple[str, int], tuple[str, AuditSink]] = {}


def record_for(principal: str, audit: AuditSink) -> None:
    """Record in *audit* which other schemes are asked for; guarded clients have no channel."""
    _guarded[principal, id(audit)] = principal, audit


def note_left(error: ConfigError, scheme: str) -> None:
    """Record that this process was to leave its scheme: perhaps a message named where to go."""
    channels = [(each.identity.principal, each.audit) for each in open_channels()]
    for principal, audit in (*channels, *_guarded.values()):
        note_refusal(audit, Context(principal, UNKNOWN, Kind.ADMIN), error, where=f"{scheme}://")


class Backends(dict[str, Any]):
    """The registry of backends, closed to late comers."""

    def get(self, scheme: str, default: Any = None) -> Any:
        """Return the backend of *scheme*; a scheme without a backend is closed like any other.

        Dask would look for what is installed under that name, and a message can name it. Its own
        is looked for: a guarded client can be there before it.
        """
        if scheme in self or scheme == _OWN:
            return super().get(scheme, default)
        return _Sealed(printable(scheme, 32)) if default is None else default

    def __setitem__(self, scheme: str, backend: Any) -> None:
        if scheme != _OWN:
            raise ConfigError(
                f"the comm backend {str(scheme)[:32]!r} registers too late: this process speaks"
                " safeser:// only",
                rule="scheme.sealed",
            )
        super().__setitem__(scheme, backend)

    def setdefault(self, scheme: str, backend: Any = None) -> Any:
        self[scheme] = backend
        return backend

    def update(self, *args: Any, **kwargs: Any) -> None:
        for scheme, backend in dict(*args, **kwargs).items():
            self[scheme] = backend

    def guard(self, guarded: Mapping[str, Any]) -> None:
        """Put *guarded* backends in place of sealed ones.

        Calling it again changes nothing: what is guarded once stays so, in this process.
        """
        for scheme, backend in guarded.items():
            if isinstance(self[scheme], _Sealed):
                super().__setitem__(scheme, backend)


def sealed(stock: Mapping[str, Any]) -> Backends:
    """Return a registry that is closed but for ``safeser``, in place of Dask's *stock*."""
    schemes = {*_KNOWN, *stock} - {_OWN}
    return Backends({scheme: _Sealed(scheme) for scheme in schemes})
