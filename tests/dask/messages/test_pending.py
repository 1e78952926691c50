"""What the reply to a request may hold is found out when the request is written."""

from __future__ import annotations

import pytest

from safeser.dask.messages.pending import pending
from safeser.dask.wire.fields import find
from safeser.dask.wire.reader import Reference


def declared(asked, reply):
    """Return where the reply to *asked* has payloads that may be pickles."""
    return [slot.where for slot in find(reply, pending(asked).fields.plan) if slot.role.declared]


@pytest.mark.parametrize(
    ("op", "reply", "where"),
    [
        ("broadcast", {"safeser://1:1": {"result": Reference(0, False)}}, "safeser://1:1.result"),
        ("proxy", {"result": Reference(0, False)}, "result"),
    ],
)
def test_a_relay_answers_with_what_it_relayed(op, reply, where):
    assert declared({"op": op, "msg": {"op": "run"}}, reply) == [where]
    assert declared({"op": op, "msg": {"op": "identity"}}, reply) == []
