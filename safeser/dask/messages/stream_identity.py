"""Check that stream elements name the client or worker that registered on their connection.

The one rule: all elements of a connection belong to the one client or worker that its principal
registered there, and a client id belongs to one principal. Dask believes each element's own claim.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from safeser.channel import Link
from safeser.dask.client_ids import ClientIds
from safeser.errors import PayloadError, PolicyDenied
from safeser.gate.values import Kind
from safeser.operations import Operation

__all__ = ["StreamIdentity", "check_registration"]

#: The field in which a stream element names its client or worker, and the one in which the
#: registration did. Dask follows the element, so that one client could act as another.
_IDENTITY = {"client-stream": "client", "worker-stream": "worker"}
_REGISTERED_AS = {"client-stream": "client", "worker-stream": "address"}


class StreamIdentity:
    """The client or worker that the peer on *link* registered as.

    :param here: whether the server is on this side.
    """

    def __init__(self, link: Link, client_ids: ClientIds, *, here: bool) -> None:
        self.link = link
        self._client_ids = client_ids
        self._here = here
        self._registered: Any = None

    def registers(self, stream: str, body: dict[str, Any]) -> None:
        """Store the name under which the request *body* registers the connection as *stream*."""
        self._registered = body.get(_REGISTERED_AS[stream])

    def claim_client_id(self, row: Operation, body: dict[str, Any]) -> None:
        """Refuse a client id in *body* that its sender did not register; claim one that registers.

        Dask keeps futures for the client that a request names, and reports them to it.
        """
        client = body.get("client")
        if client is None:
            return
        if not isinstance(client, str):  # a payload, which is not read yet
            raise PayloadError("the client id must be text", rule="stream.identity", where="client")
        if row.becomes == "client-stream":
            own = self._client_ids.claim(client, self.link.peer)
        else:
            own = self._client_ids.is_own(client, self.link.peer)
        if not own:
            raise PolicyDenied(
                "that client id is none that the sender registered",
                rule="stream.client-id",
                where="client",
            )

    def check(self, stream: str, element: dict[str, Any]) -> None:
        """Refuse an element that names another client or worker than the registered one."""
        name = _IDENTITY[stream]
        if self._here and name in element and element[name] != self._registered:
            if self._is_fire_and_forget(element):
                return
            raise PolicyDenied(
                f"this connection registered as another {name} than the one that the element names",
                rule="stream.identity",
                where=name,
            )

    def _is_fire_and_forget(self, element: dict[str, Any]) -> bool:
        """Tell whether *element* is ``fire_and_forget`` by a principal that may submit work.

        Dask's scheduler keeps such work under a client of that name until it is done. Keys that are
        never done stay there for good, so a principal that may not submit must not add any.
        """
        if element["op"] != "client-desires-keys" or element["client"] != "fire-and-forget":
            return False
        context = self.link.inbound(Kind.TASK, "update-graph")
        return self.link.policy.permits_operation(context).permitted


def check_registration(row: Operation, body: dict[str, Any]) -> None:
    """Refuse a registration whose name is not text in the message itself, or mimics an address.

    A payload in place of the name would compare equal to any payload in a later element.
    """
    field = _REGISTERED_AS.get(row.becomes or "")
    if field is None:
        return
    if not isinstance(body.get(field), str):
        raise PayloadError(
            "a registration must name its client or worker", rule="stream.identity", where=field
        )
    name = body.get("name")
    if isinstance(name, str) and name != body[field] and _is_address(name):
        # Dask accepts a worker's name wherever it accepts an address or a host: a worker named like
        # the address of another one would get the tasks and messages meant for that one.
        raise PolicyDenied(
            "a worker's name must not be an address other than its own",
            rule="stream.name",
            where="name",
        )


def _is_address(name: str) -> bool:
    if name.startswith("["):
        host = name[1:].partition("]")[0]
    else:
        host = name if name.count(":") > 1 else name.partition(":")[0]
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return "://" in name or (host == "localhost" and ":" in name)
    return True
