"""Which of Dask's roles a connection is opened for, said in its arguments.

The one rule: a server's connections are its own role's, whatever Dask calls it, and a client's are
a client's, wherever it runs. Dask's ``Security`` is asked for the arguments of a role and does not
pass the role on, and a nanny asks for its worker's; in tests that run a whole cluster in one
process, each would otherwise speak as another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, MutableMapping
from typing import Any

from distributed.security import Security

from safeser.operations import Server

__all__ = ["name_roles", "own_connections"]

_KEY = "safeser"


def name_roles() -> None:
    """Let Dask's own ``Security`` say for which role it was asked; once, and more does no harm."""
    asked = Security.get_connection_args
    if getattr(asked, "__wrapped__", None) is not None:
        return

    @functools.wraps(asked)
    def get_connection_args(self: Any, role: str) -> dict[str, Any]:
        arguments: dict[str, Any] = asked(self, role)
        arguments[_KEY] = {"role": role}
        return arguments

    Security.get_connection_args = get_connection_args


def own_connections(comm_handler: Callable[[Any], Any], server: Server) -> None:
    """Make what the server behind *comm_handler* connects to hear it as *server*.

    It was made before it listens, perhaps before this backend was, and connects only later.
    """
    owner: Any = getattr(comm_handler, "__self__", None)
    for holder in (owner, getattr(owner, "rpc", None)):
        arguments = getattr(holder, "connection_args", None)
        if isinstance(arguments, MutableMapping):
            arguments[_KEY] = {**arguments.get(_KEY, {}), "role": server.value}
