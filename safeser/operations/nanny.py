"""What a nanny handles.

The one rule: one row for each handler that a running nanny registers.
"""

from __future__ import annotations

from functools import partial

from safeser.operations.operation import Channel, Encoding, Operation, Server, payload, plain
from safeser.values import Kind

__all__ = ["NANNY"]

_RPC = partial(Operation, Server.NANNY, Channel.RPC)
_plain_rpc = partial(plain, Server.NANNY, Channel.RPC)

NANNY = (
    *_plain_rpc("basic", "identity"),
    _RPC("close", Kind.ADMIN, "basic", inline=True, note="ends this connection only"),
    *_plain_rpc("diagnose", "dump_state get_logs"),
    _RPC(
        "run",
        Kind.CONTROL,
        "run",
        fields=payload(Encoding.RAW, "function args kwargs"),
        reply=payload(Encoding.MARKED, "result"),
    ),
    _RPC("plugin_add", Kind.CONTROL, "plugins", fields=payload(Encoding.RAW, "plugin")),
    _RPC("plugin_remove", Kind.CONTROL, "plugins"),
    *_plain_rpc("control", "instantiate kill restart terminate", kind=Kind.CONTROL),
    _RPC(
        "close_gracefully",
        Kind.CONTROL,
        "control",
        note="its worker says that it retires and must not be started again",
    ),
    _RPC("echo", Kind.CONTROL, "debug", note="replies with its decoded argument"),
    _RPC(
        "connection_stream",
        Kind.CONTROL,
        "debug",
        becomes="raw-stream",
        note="a nanny has no stream handlers, so that nothing can follow",
    ),
)
