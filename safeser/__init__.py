"""safeser: a restricted deserialization gateway, for Dask and without it.

Public names, by what they are for:

- who: :class:`Identity`, :class:`Roster`
- what may pass: :class:`Policy`, :class:`Context`
- messages: :class:`Channel` on a connection; :class:`Box` without one, for queues, caches and
  files, with :class:`Once` and :class:`Secret`
- the record: :class:`AuditLog`, :mod:`safeser.audit`
- pickles under restriction: :mod:`safeser.pickles`
- objects to headers and frames, and back: :func:`serialize`, :func:`deserialize`, and the
  ``register_`` functions for one's own types and families
- whether an object can be sent, and what keeps it from it: :func:`preflight`
- tokens of values and definitions that agree between processes: :func:`tokenize`
- what is serialized, by which family and where: :func:`trace_serialization`
- Dask (needs the ``[dask]`` extra): :class:`Client`, :class:`LocalCluster`, :class:`Security`
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from safeser.errors import (
    AuditError,
    AuthenticationError,
    ConfigError,
    EnvelopeError,
    PayloadError,
    PolicyDenied,
    SafeserError,
    SerializationError,
    TokenizationError,
)
from safeser.gate.values import Context, Decision, Grant, Kind, Limits, Payload

if TYPE_CHECKING:
    from safeser import audit, pickles
    from safeser.audit import AuditLog
    from safeser.channel import Channel
    from safeser.channel.box import Box, Opened
    from safeser.channel.once import Once
    from safeser.dask.client import Client
    from safeser.dask.cluster import LocalCluster
    from safeser.dask.security import Security
    from safeser.families.marked import Serialize, Serialized, to_serialize
    from safeser.families.registered.classes import register_class
    from safeser.families.registered.dispatch import (
        dask_deserialize,
        dask_serialize,
        register_serialization,
    )
    from safeser.families.registered.generic import register_generic
    from safeser.families.registered.own import register_serialization_family
    from safeser.identity import Identity, Roster
    from safeser.identity.secret import Secret
    from safeser.policy import Policy
    from safeser.sendable.preflight import Preflight, preflight
    from safeser.serialization import (
        deserialize,
        deserialize_bytes,
        serialize,
        serialize_bytes,
    )
    from safeser.tokens import tokenize
    from safeser.trace.tracing import trace_serialization

__version__ = "0.1.0"

__all__ = [
    "AuditError",
    "AuditLog",
    "AuthenticationError",
    "Box",
    "Channel",
    "Client",
    "ConfigError",
    "Context",
    "Decision",
    "EnvelopeError",
    "Grant",
    "Identity",
    "Kind",
    "Limits",
    "LocalCluster",
    "Once",
    "Opened",
    "Payload",
    "PayloadError",
    "Policy",
    "PolicyDenied",
    "Preflight",
    "Roster",
    "SafeserError",
    "Secret",
    "Security",
    "SerializationError",
    "Serialize",
    "Serialized",
    "TokenizationError",
    "audit",
    "dask_deserialize",
    "dask_serialize",
    "deserialize",
    "deserialize_bytes",
    "pickles",
    "preflight",
    "register_class",
    "register_generic",
    "register_serialization",
    "register_serialization_family",
    "serialize",
    "serialize_bytes",
    "to_serialize",
    "tokenize",
    "trace_serialization",
]


def _has_dask() -> bool:
    try:
        return find_spec("distributed") is not None
    except ImportError:
        return False


# Loaded when first used: the command line starts without NumPy, the library without Dask.
_LAZY = {
    "AuditLog": "safeser.audit",
    "Box": "safeser.channel.box",
    "Channel": "safeser.channel",
    "Client": "safeser.dask.client",
    "Identity": "safeser.identity",
    "LocalCluster": "safeser.dask.cluster",
    "Once": "safeser.channel.once",
    "Opened": "safeser.channel.box",
    "Policy": "safeser.policy",
    "Preflight": "safeser.sendable.preflight",
    "Roster": "safeser.identity",
    "Secret": "safeser.identity.secret",
    "Security": "safeser.dask.security",
    "Serialize": "safeser.families.marked",
    "Serialized": "safeser.families.marked",
    "dask_deserialize": "safeser.families.registered.dispatch",
    "dask_serialize": "safeser.families.registered.dispatch",
    "deserialize": "safeser.serialization",
    "deserialize_bytes": "safeser.serialization",
    "preflight": "safeser.sendable.preflight",
    "register_class": "safeser.families.registered.classes",
    "register_generic": "safeser.families.registered.generic",
    "register_serialization": "safeser.families.registered.dispatch",
    "register_serialization_family": "safeser.families.registered.own",
    "serialize": "safeser.serialization",
    "serialize_bytes": "safeser.serialization",
    "to_serialize": "safeser.families.marked",
    "tokenize": "safeser.tokens",
    "trace_serialization": "safeser.trace.tracing",
}
_NEED_DASK = ("Client", "LocalCluster", "Security")
_MODULES = ("audit", "pickles")

if not _has_dask():  # what cannot be had is not offered to "import *"
    __all__ = [name for name in __all__ if name not in _NEED_DASK]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"safeser.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'safeser' has no attribute {name!r}")
    if name in _NEED_DASK:
        import_module("safeser.dask").require_distributed()
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
