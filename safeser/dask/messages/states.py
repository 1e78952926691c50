"""The states of one connection, and the meaning of a message in each: one table, as in h11.

The one rule: the meaning of a message follows from the state of its connection and from the table
of operations, never from a claim in the message. A peer's message has a meaning in every state; a
state that is not in :data:`NEXT` would follow by a defect of this program alone.

A connection has an asker, which opened it, and a server, which answers. Each side keeps its own
state, which changes with what that side reads and writes. A refused message changes no state,
except where the connection cannot go on without it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, NamedTuple


class State(enum.Enum):
    """What one side of a connection waits for."""

    SERVER_GREETING = "Dask's own handshake, of an asker"
    SERVING = "a request"
    CONFIRMING = "a request, or the asker's last word on the reply to the one before"
    ASKER_GREETING = "Dask's own handshake, of a server"
    ASKING = "a reply, if anything was asked"
    SILENCED = "a reply; after the one before, an error, no last word is sent"
    STARTING = "the start of a client's stream, or why there is none"
    OPENING = "the reply to a worker that asks for its stream, or the first batch of that"
    STREAMING = "batches of stream elements"
    UNOPENED = "nothing: the stream that this side asked for did not come about"

    __hash__ = object.__hash__  # quicker than enum's own, see values.Kind


class Meaning(enum.Enum):
    """How a message is read."""

    GREETING = "Dask's own handshake"
    REQUEST = "a request, which is answered"
    LAST_WORD = "the asker's last word on a reply"
    REPLY = "the reply to what was asked"
    START = "the start of a stream, or the reply that refuses it"
    ELEMENTS = "stream elements, each by itself"

    __hash__ = object.__hash__


class _Forms(NamedTuple):
    """The meaning of a message in one state, by its form.

    :param operation: a dictionary that names an operation.
    :param answer: a dictionary that names none.
    :param other: a batch of elements, or a confirmation such as "OK".
    :param malformed: one that cannot be parsed: a request is answered with the error; for a reply
        or a start of a stream it is raised; a batch loses its malformed elements.
    """

    operation: Meaning
    answer: Meaning
    other: Meaning
    malformed: Meaning


_ANY = {meaning: _Forms(meaning, meaning, meaning, meaning) for meaning in Meaning}
_GREETING = _ANY[Meaning.GREETING]
_SERVED_WORD = _Forms(Meaning.REQUEST, Meaning.LAST_WORD, Meaning.LAST_WORD, Meaning.REQUEST)
_FIRST_OF_WORKER = _Forms(Meaning.ELEMENTS, Meaning.REPLY, Meaning.ELEMENTS, Meaning.START)

#: The meaning of a message, by the state of the side that reads it.
_MEANINGS: Mapping[State, _Forms] = {
    State.SERVER_GREETING: _GREETING._replace(malformed=Meaning.REQUEST),
    State.SERVING: _ANY[Meaning.REQUEST],
    State.CONFIRMING: _SERVED_WORD,
    State.ASKER_GREETING: _GREETING._replace(malformed=Meaning.REPLY),
    State.ASKING: _ANY[Meaning.REPLY],
    State.SILENCED: _ANY[Meaning.REPLY],
    State.STARTING: _ANY[Meaning.START],
    State.OPENING: _FIRST_OF_WORKER,
    State.STREAMING: _ANY[Meaning.ELEMENTS],
    State.UNOPENED: _ANY[Meaning.ELEMENTS],
}

_SERVED = frozenset({State.SERVING, State.CONFIRMING, State.STREAMING})
_ASKED = frozenset({State.ASKING, State.SILENCED, State.STARTING, State.OPENING})
_OPENED = frozenset({State.STREAMING, State.UNOPENED})

#: The states that may follow.
NEXT: Mapping[State, frozenset[State]] = {
    State.SERVER_GREETING: frozenset({State.SERVING}),
    State.SERVING: _SERVED,
    State.CONFIRMING: _SERVED,
    State.ASKER_GREETING: frozenset({State.ASKING}),
    State.ASKING: _ASKED,
    State.SILENCED: _ASKED,
    State.STARTING: _OPENED,
    State.OPENING: _OPENED,
    State.STREAMING: frozenset(),
    State.UNOPENED: frozenset(),
}

GREETINGS = frozenset({State.SERVER_GREETING, State.ASKER_GREETING})
SERVES = frozenset({State.SERVER_GREETING, State.SERVING, State.CONFIRMING})
STREAMS = frozenset({State.STARTING, State.OPENING, State.STREAMING, State.UNOPENED})


def meaning_of(state: State, body: Any) -> Meaning:
    """Return the meaning in *state* of the message *body*, which is not decided yet."""
    forms = _MEANINGS[state]
    if not isinstance(body, dict):
        return forms.other
    return forms.operation if "op" in body else forms.answer


def meaning_of_malformed(state: State) -> Meaning:
    """Return the meaning in *state* of a message that cannot be parsed."""
    return _MEANINGS[state].malformed
