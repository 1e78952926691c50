"""Attacks as data: a message, its sender, its recipient, and the rule and record of its refusal.

The one rule: a row outlives the code that it attacked. What a deletion takes out of safeser's
promises stays here with ``rule=None``: the message is admitted, and SECURITY.md says whose risk
that is.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgpack

from safeser import families
from safeser.dask.wire.codec import PayloadRow
from tests.dask.forged import Eager

__all__ = [
    "ALL",
    "BYTES",
    "EVIL",
    "FORMS",
    "MARKER",
    "PICKLE",
    "WITHOUT_CODE",
    "Raw",
    "Row",
    "by",
    "forms_of",
    "in_forms",
    "payload",
    "rows",
]

#: What opens one of the pickles here makes this file.
MARKER = Path(tempfile.gettempdir()) / f"safeser-attacked-{os.getpid()}"

PICKLE = {"serializer": "pickle", "writeable": []}

#: Guests may have code run by name, and may send no pickle at all.
WITHOUT_CODE = (Path(__file__).parents[1] / "trusted_without_code.yaml").read_text()


@dataclass(frozen=True, slots=True)
class Raw:
    """Frames as they go into a session, of a request or, if *listed*, on a stream."""

    frames: tuple[bytes, ...]
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """One hostile message of a peer with a valid session.

    :param name: of the attack, in a few words; unique among all tables.
    :param sender: and *recipient*: principals of *policy*.
    :param message: as the sender puts it on the wire; payloads are rows of the codec. A mapping is
        a request; a list is elements of the stream of a client or worker that registered.
    :param rule: of the refusal, or of several, with a space between; None where the message is
        admitted since the promise was deleted.
    :param policy: the name of a ready policy, or the text of one.
    :param asked: the request of the recipient that *message* answers, if it is an answer.
    :param operation: that the record of the refusal names.
    :param leaves: the operations of what Dask reads all the same, or in place of what was refused.
    """

    name: str
    sender: str
    recipient: str
    message: Any
    rule: str | None
    policy: str = "dask-cluster"
    asked: Any = None
    operation: str | None = None
    leaves: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The class of the attack; of each class, a row goes to a live cluster."""
        if self.rule is None or self.asked is not None:
            return "admitted" if self.rule is None else "answer"
        exact = KINDS.get(self.rule.partition(" ")[0])
        return exact or KINDS[self.rule.partition(".")[0]]


#: The class of an attack, by the rule of its refusal or the first part of it.
KINDS = {
    "authentication": "stranger",
    "operation.not-granted": "role",
    "operation.unknown": "operation",
    "operation.missing": "operation",
    "operation.relayed": "relay",
    "operation": "field",
    "context": "pickle",
    "raw": "pickle",
    "families": "payload",
    "peer": "payload",
    "marker": "message",
    "payload": "message",
    "limit": "message",
    "stream": "stream",
    "submission": "author",
    "author": "author",
    "sealed": "author",
}


class _Touch:
    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(MARKER), "w")


#: The place of a payload in a message.
EVIL = object()

BYTES = pickle.dumps(_Touch())


def forms_of(evil: bytes) -> dict[str, Any]:
    """Return the ways in which the pickle *evil* can stand in a field."""
    in_bytes = PayloadRow({"serializer": "msgpack"}, (msgpack.packb(evil),))
    return {
        "bare": evil,
        "bytes": in_bytes,
        "eager-bytes": Eager(in_bytes),
        "opaque": PayloadRow(PICKLE, (evil,)),
        "eager": Eager(PayloadRow(PICKLE, (evil,))),
        "cloudpickle": PayloadRow({**PICKLE, "serializer": "cloudpickle"}, (evil,)),
        "failed": PayloadRow(PICKLE, (evil,), None, True),
        "author": PayloadRow(PICKLE, (evil,), "alice"),
    }


FORMS = forms_of(BYTES)
ALL = tuple(FORMS)


def payload(value: Any) -> PayloadRow:
    """Return the row by which typed data or msgpack carries *value*."""
    header, frames = families.serialize(value, ["dask", "msgpack", "error"])
    return PayloadRow({k: v for k, v in header.items() if k != "lengths"}, tuple(frames))


def filled(template: Any, form: Any) -> Any:
    """Return *template* with *form* in each place of a payload."""
    if template is EVIL:
        return form
    if isinstance(template, dict):
        return {key: filled(item, form) for key, item in template.items()}
    if isinstance(template, list):
        return [filled(item, form) for item in template]
    return template


def by(sender: str, recipient: str = "scheduler") -> Callable[..., tuple[Row, ...]]:
    """Return :func:`rows` for one sender and recipient."""

    def made(title: str, *said: Any, **more: Any) -> tuple[Row, ...]:
        return rows(title, sender, recipient, *said, **more)

    return made


def rows(
    title: str, sender: str, recipient: str, rule: str | None, messages: Iterable[Any], **more: Any
) -> tuple[Row, ...]:
    """Return a row for each of *messages*, which one rule refuses."""
    more = {"policy": "demo", **more}
    return tuple(
        Row(f"{title} ({number})", sender, recipient, message, rule, **more)
        for number, message in enumerate(messages)
    )


def in_forms(
    title: str,
    sender: str,
    recipient: str,
    rules: Mapping[str, str],
    templates: Iterable[Any],
    **more: Any,
) -> tuple[Row, ...]:
    """Return a row for each of *templates* with a pickle in each form.

    :param rules: by the names of forms, one rule for all that a string lists.
    """
    by_form = {form: rule for forms, rule in rules.items() for form in forms.split()}
    more = {"policy": "demo", **more}
    return tuple(
        Row(f"{title} ({number}): {form}", sender, recipient, said, rule, **more)
        for number, template in enumerate(templates)
        for form, rule in by_form.items()
        for said in (filled(template, FORMS[form]),)
    )
