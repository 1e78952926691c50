"""What the reply to a request may hold is found out when the request is written."""

from __future__ import annotations

import pytest

from safeser.dask.messages.pending import pending
from safeser.dask.wire.reader import Reference
from safeser.dask.wire.slots import find


def declared(asked, reply):
    """Return where the reply to *asked* has payloads that may be pickles."""
    return [slot.where for slot in find(reply, pending(asked).fields.plan) if slot.role.declared]


def test_any_reply_may_say_why_it_failed():
    one, two, three = (Reference(number, False) for number in range(3))
    reply = {"exception": one, "traceback": two, "text": three}
    assert declared({"op": "identity"}, reply) == ["exception", "traceback"]
    wholes = [
        slot for slot in find(reply, pending({"op": "identity"}).fields.plan) if slot.role.whole
    ]
    assert [slot.where for slot in wholes] == ["traceback"]


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


def test_what_users_put_in_is_not_looked_at_as_text():
    fields = pending({"op": "gather", "keys": []}).fields
    assert dict(fields.blanks) == dict.fromkeys(("data", "exception", "traceback"))
    assert fields.unshown == ()
    fields = pending({"op": "broadcast", "msg": {"op": "run"}}).fields
    assert set(fields.unshown) == {"*.result", "*.exception", "*.traceback"}
    assert pending({"op": "get_runspec"}).fields.unshown == ("",)
