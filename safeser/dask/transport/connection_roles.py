"""State in a connection's arguments which of Dask's roles it is opened for.

The one rule: a server opens connections in its own role, and a client in the role of a client,
wherever it runs. Dask's ``Security`` is asked for the arguments of a role and does not pass the
role on, and a nanny asks for those of its worker; where a whole cluster runs in one process, one
role would otherwise use the identity of another.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from safeser.operations import Server

__all__ = ["own_connections", "with_role"]

_KEY = "safeser"


def with_role(stock: Callable[[str], dict[str, Any]], _: Any, role: str) -> dict[str, Any]:
    """Return what ``Security.get_connection_args``, *stock*, does, with the role in it."""
    return {**stock(role), _KEY: {"role": role}}


def own_connections(server: Any, role: Server) -> None:
    """Record in the connection arguments that *server* keeps that it connects as *role*.

    It was made before it listens, perhaps before this backend was, and connects only later.
    """
    for holder in (server, getattr(server, "rpc", None)):
        arguments = getattr(holder, "connection_args", None)
        if isinstance(arguments, MutableMapping):
            arguments[_KEY] = {**arguments.get(_KEY, {}), "role": role.value}
