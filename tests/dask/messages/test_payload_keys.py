"""Payloads that stand as keys or members are looked at as keys once it is known what they are."""

from __future__ import annotations

import pickle

from safeser import families
from safeser.dask.wire.codec import Reference, substitute
from safeser.errors import PayloadError
from tests.refusal import refusal


def keyed(talk, values, other=1):
    """Have a worker's event hold *values* as keys of one dictionary, opened where it arrives."""
    t = talk("worker").worker_stream()
    rows = []
    for value in values:
        header, frames = families.serialize(value, ["dask", "msgpack"])
        rows.append(t.Eager(t.Row(header, tuple(frames))))
    message = {"op": "log-event", "topic": "x", "msg": dict.fromkeys(rows, other)}
    return t, t.attack([message])


def test_a_payload_may_be_a_key(talk):
    _, (got,) = keyed(talk, [1, "a", 2.5, (3, 4)], other=[1])
    assert got["msg"] == dict.fromkeys([1, "a", 2.5, (3, 4)], (1,))


def test_payloads_that_were_made_to_share_a_hash_are_no_keys(talk):
    same = [number * ((1 << 61) - 1) for number in range(1, 66)]
    assert len(set(map(hash, same))) == 1
    t, got = keyed(talk, same)
    assert got is t.SKIP
    assert t.refused_by_server == ["payload.hash-flood"]
    _, (got,) = keyed(talk, same[:64])
    assert list(got["msg"]) == same[:64]


def test_nor_are_members_of_a_set_that_share_a_hash():
    objects = {number: number * ((1 << 61) - 1) for number in range(1, 66)}
    members = {Reference(index, eager=True) for index in objects}
    with refusal(PayloadError, "payload.hash-flood"):
        substitute(members, objects)
    few = {Reference(1, eager=True), "b"}
    assert substitute(few, {1: "a"}) == {"a", "b"}


class Quarrels:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return 1

    def __eq__(self, other):
        raise ValueError("no")


def test_a_payload_that_cannot_be_compared_is_no_key(talk):
    t = talk("scheduler", "worker")
    header = {"serializer": "cloudpickle", "writeable": []}
    rows = [t.Row(header, (pickle.dumps(Quarrels(number)),)) for number in range(2)]
    data = dict.fromkeys(map(t.Eager, rows), 1)
    assert t.attack({"op": "update_data", "data": data, "reply": True}) is t.SKIP
    assert t.refused_by_server == ["payload.key"]
