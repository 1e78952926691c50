"""As which client or worker a connection registered, and which principal owns a client's id.

The one rule: the elements of one connection are those of one client or worker, that of the
principal that registered it. Dask believes what each element says itself.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

from safeser.channel import Link
from safeser.dask.client_ids import ClientIds
from safeser.errors import PayloadError, PolicyDenied
from safeser.operations import Operation
from safeser.values import Kind

__all__ = ["StreamIdentity", "check_registration"]

#: The field by which a stream element says whose it is, and by which its connection registered.
#: Dask lets the element's word win, so that one client could speak as another.
_IDENTITY = {"client-stream": "client", "worker-stream": "worker"}
_REGISTERED_AS = {"client-stream": "client", "worker-stream": "address"}


class StreamIdentity:
    """What the peer on *link* may call itself.

    :param here: whether the peer speaks to a server on this side.
    """

    def __init__(self, link: Link, client_ids: ClientIds, *, here: bool) -> None:
        self.link = link
        self._client_ids = client_ids
        self._here = here
        self._registered: Any = None

    def registers(self, stream: str, body: dict[str, Any]) -> None:
        """Keep the name by which *body* registered the connection that becomes *stream*."""
        self._registered = body.get(_REGISTERED_AS[stream])

    def claim_client_id(self, row: Operation, body: dict[str, Any]) -> None:
        """Refuse a client's id that belongs to another principal, registered or only named.

        Whose futures are kept, and who is told of them, follows from the id that a request names.
        """
        client = body.get("client")
        if client is None:
            return
        if not isinstance(client, str):  # a payload, which is not read yet
            raise PayloadError("a client must be named", rule="stream.identity", where="client")
        if row.becomes == "client-stream":
            refused = not self._client_ids.claim(client, self.link.peer)
        else:
            refused = self._client_ids.is_anothers(client, self.link.peer)
        if refused:
            raise PolicyDenied(
                "that client id belongs to another principal",
                rule="stream.client-id",
                where="client",
            )

    def check(self, stream: str, element: dict[str, Any]) -> None:
        """Refuse an element that speaks as another client or worker than registered here."""
        name = _IDENTITY[stream]
        if self._here and name in element and element[name] != self._registered:
            if self._forgets(element):
                return
            raise PolicyDenied(
                f"this connection registered as another {name} than the one that the element names",
                rule="stream.identity",
                where=name,
            )

    def _forgets(self, element: dict[str, Any]) -> bool:
        """Tell whether *element* is ``fire_and_forget`` of a principal that may submit work.

        Dask's scheduler keeps such work under a client of that name until it is done. Keys that are
        never done stay there for good, so that guests have nothing to say in it.
        """
        if element["op"] != "client-desires-keys" or element["client"] != "fire-and-forget":
            return False
        context = self.link.inbound(Kind.TASK, "update-graph")
        return self.link.policy.permits_operation(context).permitted


def check_registration(row: Operation, body: dict[str, Any]) -> None:
    """Refuse to register under anything but a name that stands in the message itself.

    A payload in its place would be equal to any payload by which a later element names itself.
    """
    field = _REGISTERED_AS.get(row.becomes or "")
    if field is None:
        return
    if not isinstance(body.get(field), str):
        raise PayloadError("who registers must be named", rule="stream.identity", where=field)
    name = body.get("name")
    if isinstance(name, str) and name != body[field] and _is_address(name):
        # Dask looks for a worker's name wherever it is told an address or a host, and takes what it
        # finds: a worker that is called like another one gets what is meant for that one.
        raise PolicyDenied(
            "a worker is called like the address of another one", rule="stream.name", where="name"
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
