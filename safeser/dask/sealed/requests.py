"""Requests that carry code to workers and nannies: signed by clients, verified on arrival.

The one rule: a scheduler passes signed values on and opens none, to processes alone whose context
accepts their author; a worker or nanny hands its handler the pickle that was verified, decided and
recorded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress, starmap
from typing import Any, NamedTuple

from safeser.channel import Arrived, Link, Received
from safeser.dask.sealed.value import MAGIC, Requests, SignedValue, sign_request
from safeser.dask.sealed.verification import require_current, require_permitted, require_signer
from safeser.dask.wire.fields import select, transform
from safeser.errors import PolicyDenied, SafeserError
from safeser.gate.values import SEALED, Context, Kind, Payload
from safeser.operations import Encoding, Operation

logger = logging.getLogger("safeser.dask")

#: Operations whose pickles workers and nannies open, by what they are for there.
_SIGNED: Mapping[str, str] = {
    "run": "run",
    "run_coroutine": "run_coroutine",
    "plugin-add": "plugin-add",
    "register_worker_plugin": "plugin-add",
    "plugin_add": "plugin_add",
    "register_nanny_plugin": "plugin_add",
}

#: Fields of replies that hold plugins under their names, by what each is for.
_PLUGINS: Mapping[str, str] = {"worker-plugins": "plugin-add", "nanny-plugins": "plugin_add"}

#: As much of a plugin's name as logs and records show: its author chose it.
_SHOWN = 64

#: What is run once for each request.
_ONCE = ("run.", "run_coroutine.")


class Raw(NamedTuple):
    """Bytes that a handler unpickles: where they stand, and what they must be signed for.

    :param purpose: empty where nothing that is signed may stand.
    """

    where: str
    data: bytes
    purpose: str = ""


def purpose_of(row: Operation, path: str, body: Mapping[str, Any]) -> str:
    """Return what a pickle at *path* of a request must be signed for, or nothing."""
    operation = _SIGNED.get(row.name)
    if operation is None:
        return ""
    name = body.get("name")
    return f"{operation}.{path}" + (f":{name}" if path == "plugin" and type(name) is str else "")


def plugins_in(body: Any, path: str) -> Iterator[tuple[str, Any, str]]:
    """Yield places and pickles of the plugins in a reply's field, and what each is signed for.

    :param path: of the field; in others than those of plugins there are none.
    """
    plugins = body.get(path) if path in _PLUGINS and isinstance(body, dict) else None
    for name, data in (plugins if isinstance(plugins, dict) else {}).items():
        # Of what is no text, two names could be one.
        purpose = f"{_PLUGINS[path]}.plugin:{name}" if type(name) is str else ""
        yield f"{path}.{str(name)[:_SHOWN]}", data, purpose


# -- where they are made --------------------------------------------------------------------------


def signed(
    link: Link, message: dict[str, Any], rows: Iterable[tuple[str, Operation]]
) -> dict[str, Any]:
    """Return a request as it leaves: its pickles signed, where policy says ``sealed``.

    :param rows: of the request, and of what is inside it at which field.
    """
    for at, row in rows:
        if row.name not in _SIGNED:
            continue
        context = link.outbound(row.kind, row.name)
        if link.policy.grant(context, sealing=True).submission != SEALED:
            continue
        body = message[at] if at else message
        found = dict(_pickles(row, body))
        if any(data.startswith(MAGIC) for data in found.values()):
            continue  # its author signed it, and this process passes it on
        pickles = {purpose_of(row, path, body): data for path, data in found.items()}
        done = sign_request(pickles, link.channel.identity, link.session.peer_key)
        body = {**body, **{path: done[purpose_of(row, path, body)] for path in found}}
        message = {**message, at: body} if at else body
    return message


def _pickles(row: Operation, body: Any) -> Iterator[tuple[str, bytes]]:
    for path, kind in row.fields.items():
        for _, data in select(body, path) if kind is Encoding.RAW else ():
            if type(data) is bytes:
                yield path, data


# -- where they leave -----------------------------------------------------------------------------


def permit_pickles(
    link: Link, message: Mapping[str, Any], rows: Iterable[tuple[str, Operation]]
) -> None:
    """Refuse a request whose pickles policy lets no peer of that principal take of their author.

    :param rows: of the request, and of what is inside it at which field.
    :raises PolicyDenied: which was recorded.
    """
    for at, row in rows:
        if row.name in _SIGNED:
            context = link.outbound(row.kind, row.name)
            for path, data in _pickles(row, message[at] if at else message):
                link.permit_sending(context, _payload(link, path, data))


def without_unaccepted(link: Link, reply: Any, fields: Collection[str]) -> Any:
    """Return a reply without the plugins that policy lets its recipient take of no such author.

    Each is recorded. This process is the author of an unsigned plugin.

    :param fields: of the reply that hold what would be unpickled.
    """
    return _with_plugins(reply, fields, partial(_is_accepted, link))


def _is_accepted(link: Link, raw: Raw) -> bool:
    try:
        if type(raw.data) is bytes:  # and not the name of one that Dask itself has
            payload = _payload(link, raw.where, raw.data)
            link.permit_sending(link.outbound(Kind.CONTROL), payload)
    except SafeserError as error:
        logger.warning("The plugin at %s is not sent: %s", ascii(raw.where), error)
        return False
    return True


def _payload(link: Link, where: str, data: bytes) -> Payload:
    if data.startswith(MAGIC):
        author = SignedValue.parse(data).author
        return Payload(where, SEALED, {"serializer": SEALED}, (data,), author)
    # The handler's unpickler has no restrictions.
    return Payload(where, "cloudpickle", {"serializer": "cloudpickle"}, (data,), link.local)


def _with_plugins(body: Any, fields: Collection[str], counts: Callable[[Raw], bool]) -> Any:
    """Return *body* with those plugins in its *fields* that count."""
    for path in _PLUGINS.keys() & fields:
        counted = [*map(counts, starmap(Raw, plugins_in(body, path)))]
        if not all(counted):
            body = {**body, path: dict(compress(body[path].items(), counted))}
    return body


# -- where they arrive ----------------------------------------------------------------------------


def received(link: Link, verified: Arrived, context: Context, raw: Sequence[Raw]) -> list[Received]:
    """Return the payloads in *raw* bytes, signed ones with their author.

    :raises PolicyDenied: for one that was signed for another request, place or cluster.
    """
    found = []
    values = []
    for each in raw:
        if not each.purpose or not each.data.startswith(MAGIC):
            found.append(link.code(verified, each.where, each.data))
            continue
        value = SignedValue.parse(each.data)
        author = _require_meant(link, value, each)
        values.append(value)
        header, frames = {"serializer": SEALED}, (each.data,)
        payload = link.signed(verified, each.where, header, frames, author=author, sealed=value)
        if not _may_sign(link, author):
            link.permit_payload(context, payload, None)
            require_signer(link, author, Kind.CONTROL, each.where)
        found.append(payload)
    _require_whole(values)
    return found


def _require_meant(link: Link, value: SignedValue, raw: Raw) -> str:
    if value.purpose != raw.purpose:
        raise PolicyDenied(
            f"it was signed for {value.purpose!r} and stands in place of {raw.purpose!r}",
            rule="sealed.place",
            where=raw.where,
        )
    return require_current(
        value, link.channel, servers=(link.local, link.peer), holds=value.verify()
    )


def _may_sign(link: Link, author: str) -> bool:
    """Tell whether *author* may sign code that the peer on *link* hands over.

    For what a peer signs and sends itself, the context between these two decides.
    """
    return author == link.peer or link.policy.may_sign(author, link.peer, Kind.CONTROL)


def _require_whole(values: Sequence[SignedValue]) -> None:
    """Refuse values of different requests, and requests of which a part is missing."""
    functions = [value for value in values if value.purpose.startswith(_ONCE)]
    if functions and (
        len({value.request for value in functions}) != 1 or functions[0].parts != len(functions)
    ):
        raise PolicyDenied(
            "the signed values of a message are not those of one request", rule="sealed.request"
        )


def without_refused(link: Link, body: Any, fields: Collection[str]) -> Any:
    """Return a reply without those signed plugins that do not count here; each is recorded.

    The others count nevertheless: the key of one author may be retired, and a plugin too old, while
    workers are to start for all others.

    :param fields: of the reply that hold what would be unpickled.
    """
    return _with_plugins(body, fields, partial(_counts, link))


def _counts(link: Link, raw: Raw) -> bool:
    """Tell whether *raw*, if it is a signed plugin, was signed by an author that policy lists."""
    if type(raw.data) is not bytes or not raw.data.startswith(MAGIC):
        return True  # which is decided with the message
    context = link.inbound(Kind.CONTROL)
    try:
        author = _require_meant(link, SignedValue.parse(raw.data), raw)
        require_permitted(link, context, author)
        if not _may_sign(link, author):
            require_signer(link, author, Kind.CONTROL, raw.where)
    except SafeserError as error:
        link.note_refusal(context, error, where=raw.where)
        logger.warning("The plugin at %s is left out: %s", ascii(raw.where), error)
        return False
    return True


def opened(
    body: Any, payloads: Iterable[Received], paths: Sequence[str], taken: Requests | None
) -> Any:
    """Return the *body* of a request or reply with the pickles of signed values in their places.

    To be called once the *payloads* are admitted.

    :param paths: of the fields in which they stand; none on a scheduler, which passes them on.
    :param taken: requests that this server has taken.
    :raises PolicyDenied: for a function that was run before.
    """
    values = {payload.frames[0]: payload.sealed for payload in payloads if payload.sealed}
    if not values or not paths:
        return body
    once = next((v for v in values.values() if v.purpose.startswith(_ONCE)), None)
    if once is not None:
        assert taken is not None, "a function outside of a request to a server"
        taken.take(once)
    for path in paths:
        body = transform(body, path, lambda field: _opened(field, values))
    return body


def _opened(field: Any, values: Mapping[bytes, SignedValue]) -> Any:
    if isinstance(field, dict):
        return {name: _opened(each, values) for name, each in field.items()}
    value = values.get(field) if type(field) is bytes else None
    return field if value is None else bytes(value.pickle)
