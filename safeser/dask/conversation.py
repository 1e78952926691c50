"""What may be said next on one connection, and what becomes of what was said.

The one rule: each message is classified by the connection's own state and the table of
operations, decided as a whole, and only then built. Replies and stream elements name no operation
or one of several tables; the state says which. A refusal answers a request, fails a reply, or
replaces a stream element; it never ends a stream that others share.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from distributed.comm.utils import OFFLOAD_THRESHOLD
from distributed.protocol.serialize import Pickled, Serialize, Serialized, ToPickle
from distributed.sizeof import safe_sizeof

from safeser import families
from safeser.channel import Admitted, Link
from safeser.dask import substitutes, translate
from safeser.dask.codec import Encoder, Parsed, PayloadRow, Reference, parse, paths, substitute
from safeser.dask.fields import pickled, references, replace, select
from safeser.dask.translate import Failure, Relayed
from safeser.envelope import Verified
from safeser.errors import PayloadError, PolicyDenied, SafeserError
from safeser.operations import Channel, Encoding, Operation, Server, lookup
from safeser.values import Context, Grant, Kind, Payload

__all__ = ["SKIP", "Conversation"]

logger = logging.getLogger("safeser.dask")

#: Returned by :meth:`Conversation.receive` where nothing is left for Dask to handle.
SKIP: Any = type("Skip", (), {"__repr__": lambda self: "SKIP"})()

#: Which table the elements of a stream belong to: (what the responder reads, what it writes).
_STREAMS = {
    "client-stream": (Server.SCHEDULER, Server.CLIENT),
    "worker-stream": (Server.SCHEDULER, Server.WORKER),
}

#: The field by which a stream element says whose it is, and by which its connection registered.
#: Dask lets the element's word win, so that one client could speak as another.
_IDENTITY = {"client-stream": "client", "worker-stream": "worker"}
_REGISTERED_AS = {"client-stream": "client", "worker-stream": "address"}

#: After these requests the asker says one word more, which is no request.
_ACKNOWLEDGED = frozenset({"get_data", "register_nanny"})

_FLOOR = ("msgpack", "dask")


class Conversation:
    """The state of one connection above the envelope.

    :param server: which of Dask's servers answers here; None where this side connected.
    :param opens: whether payloads are opened here (Dask's ``deserialize``) or passed on.
    :param deserializers: families that this side is willing to open at all.
    """

    def __init__(
        self,
        link: Link,
        *,
        server: Server | None,
        opens: bool,
        deserializers: Sequence[str] | None = None,
    ) -> None:
        self.link = link
        self.server = server
        self._opens = opens
        self._willing = deserializers
        self._greeted = False
        self._greeting_sent = False
        self._asked = ""
        self._asked_reply: Mapping[str, Encoding] = {}
        self._current: Operation | None = None
        self._remote: Server | None = None
        self._stream = ""  # state of the connection, as the table names it
        self._registered: Any = None
        self._reads: Server | None = None  # table of incoming stream elements
        self._writes: Server | None = None  # table of outgoing stream elements
        self._answers: list[list[Any]] = []

    def inbound_context(self) -> Context:
        return self.link.inbound(Kind.ADMIN)

    def take_answers(self) -> list[list[Any]]:
        """Return, once, the frames that refusals put in line for the peer."""
        answers, self._answers = self._answers, []
        return answers

    def may_be_large(self, message: Any) -> bool:
        size = safe_sizeof(message, default_size=-1)
        return bool(size == -1 or size > OFFLOAD_THRESHOLD)

    # --- receiving -----------------------------------------------------------------------------

    def receive(self, verified: Verified, deserializers: Sequence[str] | None) -> Any:
        """Turn verified frames into what Dask reads, or :data:`SKIP`.

        :raises SafeserError: only where this side asked and the answer is refused.
        """
        willing = deserializers if self._willing is None else self._willing
        try:
            parsed = parse(verified.frames, self.link.policy.limits)
        except PayloadError as error:
            return self._malformed(error)
        if not self._greeted:
            return self._greeting(parsed)
        if self._reads is not None and not self._is_late_reply(parsed):
            return self._elements(parsed, willing)
        if self.server is not None:
            return self._request(parsed, willing)
        return self._reply(parsed, willing)

    def _malformed(self, error: PayloadError) -> Any:
        self.link.note_refusal(self.inbound_context(), error)
        logger.warning("Refused a message from %s: %s", self.link.peer, error)
        if self._reads is not None:
            return SKIP
        if self.server is None:
            raise error
        self._answer(error)
        return SKIP

    def _greeting(self, parsed: Parsed) -> Any:
        """Dask's own handshake: versions, as plain data."""
        self.link.admit(self.inbound_context())
        match parsed.body:
            case {"pickle-protocol": int() as protocol, "python": tuple() as python} if (
                not parsed.rows and 4 <= protocol <= 99 and all(type(n) is int for n in python)
            ):
                remote = parsed.body.get("safeser-server")
                names = {server.value: server for server in Server}
                self._remote = names.get(remote) if isinstance(remote, str) else None
                self._greeted = True
                return {
                    "compression": None,
                    "python": python,
                    "pickle-protocol": protocol,
                }
        raise PayloadError("Dask's handshake is malformed", rule="payload.handshake")

    def _request(self, parsed: Parsed, willing: Sequence[str] | None) -> Any:
        body = parsed.body
        acknowledged = self._current is not None and self._current.name in _ACKNOWLEDGED
        if acknowledged and not parsed.rows and not (isinstance(body, dict) and "op" in body):
            self._current = None
            self.link.admit(self.inbound_context())
            return body
        reply = True
        try:
            if not isinstance(body, dict) or not isinstance(body.get("op"), str):
                raise PayloadError("a request must name its operation", rule="operation.missing")
            reply = body.get("reply", True) is not False
            name = body["op"]
            assert self.server is not None
            row = lookup(self.server, Channel.RPC, name)
            if row is None:
                raise _unknown(name)
            message = self._admit_element(row, body, parsed.rows, willing)
        except SafeserError as error:
            self._note(error)
            if reply or _opens_stream(body):
                self._answer(error)
            return SKIP
        self._current = row
        self._begin_stream(row, body, reading=0)
        return message

    def _begin_stream(self, row: Operation, body: dict[str, Any], *, reading: int) -> None:
        """Note that the connection becomes a stream; *reading* is 0 for the responder."""
        if row.becomes not in _STREAMS:
            return
        tables = _STREAMS[row.becomes]
        self._reads, self._writes = tables[reading], tables[1 - reading]
        self._stream = row.becomes
        self._registered = body.get(_REGISTERED_AS[row.becomes])

    def _is_late_reply(self, parsed: Parsed) -> bool:
        """Tell a reply from a stream element on a stream that is just beginning."""
        body = parsed.body
        return self.server is None and isinstance(body, dict) and "op" not in body

    def _reply(self, parsed: Parsed, willing: Sequence[str] | None) -> Any:
        """What a peer answers to what this side asked."""
        raw = [
            found
            for path, encoding in self._asked_reply.items()
            if encoding is Encoding.RAW
            for where, value in select(parsed.body, path)
            for found in pickled(value, where)
        ]
        kind = Kind.DATA if parsed.rows else Kind.ADMIN
        if raw:
            kind = Kind.CONTROL
        context = self.link.inbound(kind)
        reply = self._admit(context, parsed.body, parsed.rows, raw, willing)
        return translate.incoming_reply(self._asked, reply)

    def _elements(self, parsed: Parsed, willing: Sequence[str] | None) -> Any:
        """A batch of stream elements; each is decided by itself."""
        body = parsed.body
        elements = body if isinstance(body, tuple) else (body,)
        kept: list[Any] = []
        for element in elements:
            if element == "OK":
                continue
            try:
                kept.append(self._element(element, parsed.rows, willing))
            except SafeserError as error:
                self._note(error)
                instead = self._instead(element, error)
                if instead is not None:
                    kept.append(instead)
        return tuple(kept) if kept else SKIP

    def _element(
        self, element: Any, rows: Sequence[PayloadRow], willing: Sequence[str] | None
    ) -> Any:
        assert self._reads is not None
        if not isinstance(element, dict) or not isinstance(element.get("op"), str):
            raise PayloadError("a stream element must name its operation", rule="operation.missing")
        name = element["op"]
        row = lookup(self._reads, Channel.STREAM, name)
        if row is None or self._stream not in row.streams:
            raise _unknown(name)
        self._check_identity(element)
        message = self._admit_element(row, element, rows, willing)
        return translate.incoming_element(self._reads, name, message)

    def _check_identity(self, element: dict[str, Any]) -> None:
        """Refuse an element that speaks as another client or worker than registered here."""
        name = _IDENTITY[self._stream]
        if self.server is not None and name in element and element[name] != self._registered:
            raise PolicyDenied(
                f"this connection registered as another {name} than the one that the element names",
                rule="stream.identity",
                where=name,
            )

    def _admit_element(
        self,
        row: Operation,
        body: dict[str, Any],
        rows: Sequence[PayloadRow],
        willing: Sequence[str] | None,
    ) -> Any:
        """Decide one request or element with all that is in it, then build it."""
        raw, declared = _payload_fields(row, body)
        kinds = [row.kind]
        for nested, inner in _nested(row, body):
            # A relay must not carry what its sender may not ask for directly.
            self.link.permit_inner(self.link.inbound(nested.kind, nested.name))
            inner_raw, inner_declared = _payload_fields(nested, inner)
            raw += inner_raw
            declared |= inner_declared
            kinds.append(nested.kind)
        kinds += [Kind.CONTROL] if raw else []
        kinds += [Kind.DATA] if any(True for _ in references(body)) else []
        context = self.link.inbound(Kind.strongest(kinds), row.name)
        message = self._admit(context, body, rows, raw, willing, declared=declared)
        return self._open_wrapped(row, context, message)

    def _open_wrapped(self, row: Operation, context: Context, message: Any) -> Any:
        """Open here what a handler would unpickle once more: shards of a shuffle."""
        for path, encoding in row.fields.items():
            if encoding is Encoding.WRAPPED:
                for where, value in select(message, path):
                    if isinstance(value, bytes):
                        payload = self.link.payload(
                            context, where, translate.PICKLE_HEADER, [value]
                        )
                        admitted = self.link.admit(context, [payload])
                        opened = self.link.load_one(admitted, payload)
                        message = replace(message, path, opened)
        return message

    def _admit(
        self,
        context: Context,
        body: Any,
        rows: Sequence[PayloadRow],
        raw: Sequence[tuple[str, bytes]],
        willing: Sequence[str] | None,
        *,
        declared: set[int] | None = None,
    ) -> Any:
        """Decide *body* with every payload in it, then build it.

        :param raw: pickles in plain fields, which Dask's handlers open by themselves.
        :param declared: rows that stand where the operation has pickled payloads; None for replies,
            which may hold them anywhere that policy allows.
        """
        places = paths(body)
        payloads = [
            self.link.payload(
                context,
                where,
                rows[reference.index].header,
                rows[reference.index].frames,
                author=rows[reference.index].author,
            )
            for where, reference in places
        ]
        for payload, (_, reference) in zip(payloads, places, strict=True):
            self.link.narrow(context, payload, willing)
            stray = declared is not None and reference.index not in declared
            if stray and payload.family in ("pickle", "cloudpickle"):
                # Dask's own decoder would open a pickle in any field of any message.
                self.link.refuse(
                    context,
                    "operation.field",
                    "this operation has no pickled payload in that field",
                    payload=payload,
                )
        for where, value in raw:
            payload = self.link.payload(context, where, translate.PICKLE_HEADER, [value])
            if payload.family != "cloudpickle":
                # Dask's handler gives these bytes to an unpickler without restrictions.
                payload = Payload(where, "cloudpickle", payload.header, payload.frames)
            payloads.append(payload)
        admitted = self.link.admit(context, payloads)
        objects = {
            reference.index: self._build(admitted, payload, reference, rows[reference.index])
            for payload, (_, reference) in zip(payloads, places, strict=False)
        }
        return substitute(body, objects) if objects else body

    def _build(
        self, admitted: Admitted, payload: Payload, reference: Reference, row: PayloadRow
    ) -> Any:
        if not (self._opens or reference.eager):
            return self._pass_on(admitted, payload, row)
        value = self.link.load_one(admitted, payload)
        if row.failed:
            raise PayloadError(
                f"{payload.author} could not send this value: {value}",
                rule="peer.unsent",
                where=payload.where,
            )
        return value

    def _pass_on(self, admitted: Admitted, payload: Payload, row: PayloadRow) -> Serialized:
        if admitted.context.operation == "update-graph" and payload.where == "expr_ser":
            # The one payload that Dask's scheduler opens by itself: a graph whose sender may
            # submit code, handed on byte for byte.
            if "cloudpickle" not in admitted.grant.families or row.failed:
                raise PolicyDenied(
                    "a graph can be opened only where code may be submitted", rule="submission.none"
                )
            return Serialized(translate.to_dask_pickle(payload.header), list(payload.frames))
        return Relayed(
            payload.header, list(payload.frames), author=payload.author, failed=row.failed
        )

    def _note(self, error: SafeserError) -> None:
        logger.warning("Refused from %s: %s", self.link.peer, error)
        if not isinstance(error, PolicyDenied):  # those were recorded by the door
            self.link.note_refusal(self.inbound_context(), error)

    def _answer(self, error: SafeserError) -> None:
        """Put an error reply in line for the peer."""
        reply = {
            "status": "uncaught-error",
            "exception": error,
            "traceback": None,
            "exception_text": str(error),
            "traceback_text": "",
        }
        self._answers.append(self._encode([reply], self._plain_leaf, listed=False))

    def _instead(self, element: Any, error: SafeserError) -> dict[str, Any] | None:
        """Return what Dask handles in place of a refused element, or None to leave it out."""
        if not isinstance(element, dict):
            return None
        if element.get("op") == "update-graph" and self._writes is Server.CLIENT:
            self._tell_client(element.get("keys"), error)
            return None
        return substitutes.for_element(self._reads, element, error)

    def _tell_client(self, keys: Any, error: SafeserError) -> None:
        """Fail the futures of a refused graph, so that nobody waits for them."""
        if not isinstance(keys, tuple | set | list):
            return
        elements = [
            {"op": "task-erred", "key": key, "exception": error, "traceback": None}
            for key in keys
            if isinstance(key, str | tuple | bytes | int)
        ]
        if elements:
            self._answers.append(self._encode(elements, self._plain_leaf, listed=True))

    def _plain_leaf(self, leaf: Any) -> tuple[PayloadRow, bool]:
        if isinstance(leaf, Failure):
            return self._failure_row(leaf), False
        raise PayloadError("this cannot be part of an answer", rule="payload.unsendable")

    # --- sending -------------------------------------------------------------------------------

    def send(self, message: Any, serializers: Sequence[str] | None = None) -> list[Any]:
        """Turn what Dask writes into frames to seal.

        :raises PolicyDenied: if a request may not leave. In replies and on streams a value that
            may not leave is replaced by the reason.
        """
        if not self._greeting_sent:
            self._greeting_sent = True
            return self._encode([message], self._plain_leaf, listed=False)
        if self._writes is not None and _is_stream(message):
            elements = message if isinstance(message, list | tuple) else [message]
            return self._send_elements(elements, listed=isinstance(message, list | tuple))
        if self.server is None:
            return self._send_request(message, serializers)
        leaf = _Leaf(self.link, Kind.DATA, None, serializers, fails=True, row=self._failure_row)
        return self._encode([message], leaf, listed=False)

    def _send_request(self, message: Any, serializers: Sequence[str] | None) -> list[Any]:
        name = message.get("op") if isinstance(message, dict) else None
        if not isinstance(name, str):  # the last word of an exchange, such as "OK"
            return self._encode([message], self._plain_leaf, listed=False)
        row = self._row_for(name)
        if row is None:
            raise _unknown(name)
        self._asked, self._asked_reply = name, row.reply
        kind = row.kind if row.kind is not Kind.ADMIN else Kind.DATA
        self.link.permit_operation(self.link.outbound(row.kind, name))
        leaf = _Leaf(self.link, kind, name, serializers, fails=False, row=self._failure_row)
        frames = self._encode([message], leaf, listed=False)
        self._begin_stream(row, message, reading=1)
        return frames

    def _row_for(self, name: str) -> Operation | None:
        """Return the row of a request; the peer's word about its role only picks the table."""
        servers = (Server.SCHEDULER, Server.WORKER, Server.NANNY)
        if self._remote in servers:
            return lookup(self._remote, Channel.RPC, name)
        rows = [lookup(server, Channel.RPC, name) for server in servers]
        return next((row for row in rows if row is not None), None)

    def _send_elements(self, elements: Sequence[Any], *, listed: bool) -> list[Any]:
        assert self._writes is not None
        encoder = Encoder()
        for element in elements:
            name = element.get("op") if isinstance(element, dict) else None
            row = lookup(self._writes, Channel.STREAM, name) if isinstance(name, str) else None
            if row is None:
                logger.error("Not sent to %s: operation %r is not known", self.link.peer, name)
                continue
            kind = row.kind if row.kind is not Kind.ADMIN else Kind.DATA
            leaf = _Leaf(self.link, kind, row.name, None, fails=True, row=self._failure_row)
            encoder.add(translate.outgoing(element), leaf)
        return encoder.frames(listed=listed)

    def _encode(
        self,
        elements: Sequence[Any],
        leaf: Callable[[Any], tuple[PayloadRow, bool]],
        *,
        listed: bool,
    ) -> list[Any]:
        encoder = Encoder()
        for element in elements:
            encoder.add(translate.outgoing(element), leaf)
        return encoder.frames(listed=listed)

    def _failure_row(self, failure: Failure, *, failed: bool = False) -> PayloadRow:
        header, frames = translate.serialize_failure(failure)
        return PayloadRow(header, tuple(frames), None, failed)


class _Leaf:
    """Turns one leaf of an outgoing message into a payload row, as policy allows."""

    def __init__(
        self,
        link: Link,
        kind: Kind,
        operation: str | None,
        serializers: Sequence[str] | None,
        *,
        fails: bool,
        row: Callable[..., PayloadRow],
    ) -> None:
        self._link = link
        self._context = link.outbound(kind, operation)
        self._serializers = serializers
        self._fails = fails
        self._row = row
        self._grant: Grant | None = None

    def __call__(self, leaf: Any) -> tuple[PayloadRow, bool]:
        if isinstance(leaf, Failure):
            return self._row(leaf), False
        eager = not isinstance(leaf, Serialize | Serialized)
        try:
            return self._permitted(leaf), eager
        except SafeserError as error:
            if not self._fails:
                raise
            logger.warning("Not sent to %s: %s", self._link.peer, error)
            return self._row(translate.failure_of(error), failed=True), eager

    def _permitted(self, leaf: Any) -> PayloadRow:
        if isinstance(leaf, Relayed):
            header, frames, author, failed = leaf.header, leaf.frames, leaf.author, leaf.failed
        elif isinstance(leaf, Serialized):
            header, frames = translate.from_dask_pickle(leaf.header, leaf.frames)
            author, failed = None, False
        elif isinstance(leaf, Pickled):
            raise PayloadError("bytes that Dask pickled are not passed on", rule="payload.pickled")
        else:
            header, frames = self._serialize(leaf)
            author, failed = None, False
        family = families.claimed(header)
        if family == "pickle" and self._may_code():
            family = "cloudpickle"
        payload = Payload("", family, header, tuple(frames), author or self._link.local)
        self._link.permit_sending(self._context, payload)
        return PayloadRow(header, tuple(frames), author, failed)

    def _serialize(self, leaf: Any) -> tuple[dict[str, Any], list[Any]]:
        if self._grant is None:
            self._grant = self._link.allowed(self._context, self._serializers)
        if isinstance(leaf, Serialize | ToPickle):
            return self._link.serialize(leaf.data, self._grant)
        # A stray leaf of an otherwise plain message, such as a NumPy integer in a key.
        return self._link.serialize(leaf, self._grant.narrowed(_FLOOR))

    def _may_code(self) -> bool:
        if self._grant is None:
            self._grant = self._link.allowed(self._context, self._serializers)
        return "cloudpickle" in self._grant.families


def _opens_stream(body: Any) -> bool:
    """Tell whether the sender of a refused request waits for a stream rather than a reply."""
    return isinstance(body, dict) and body.get("op") in ("register-client", "register-worker")


def _is_stream(message: Any) -> bool:
    return isinstance(message, list | tuple) or (isinstance(message, dict) and "op" in message)


def _unknown(name: Any) -> PolicyDenied:
    shown = "".join(c for c in str(name)[:64] if c.isprintable())
    return PolicyDenied(
        f"operation {shown!r} is not in the table of operations",
        rule="operation.unknown",
        fix="Use a version of distributed that this version of safeser supports.",
    )


def _payload_fields(
    row: Operation, body: dict[str, Any]
) -> tuple[list[tuple[str, bytes]], set[int]]:
    """Return the bare pickles of a message, and the rows that stand where it has payloads."""
    raw: list[tuple[str, bytes]] = []
    declared: set[int] = set()
    for path, encoding in row.fields.items():
        for where, value in select(body, path):
            if encoding is Encoding.RAW and not _is_reported_type(row, path):
                raw += pickled(value, where)
            elif encoding is not Encoding.NESTED:
                declared.update(references(value))
    return raw, declared


def _is_reported_type(row: Operation, path: str) -> bool:
    # A name on safeser://; bytes there lose the name, not the whole element.
    return path == "type" and row.name in ("task-finished", "key-in-memory")


def _nested(row: Operation, body: dict[str, Any]) -> Iterator[tuple[Operation, dict[str, Any]]]:
    """Yield the operation that a relay carries, as each server it may reach knows it."""
    for path, encoding in row.fields.items():
        if encoding is not Encoding.NESTED:
            continue
        inner = body.get(path)
        name = inner.get("op") if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or not isinstance(name, str):
            raise PayloadError(
                "a relayed request must name its operation", rule="operation.missing", where=path
            )
        rows = [lookup(server, Channel.RPC, name) for server in (Server.WORKER, Server.NANNY)]
        known = [nested for nested in rows if nested is not None]
        if not known:
            raise _unknown(name)
        for nested in known:
            yield nested, inner
