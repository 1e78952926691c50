"""What was made of a payload once stays with nobody who was not given it."""

from __future__ import annotations

import tracemalloc

import msgpack
import numpy as np
import pytest

from safeser import families
from safeser.errors import PayloadError
from safeser.families import building, receiving
from safeser.families.registered import dispatch
from safeser.gate.values import Context, Kind

POLICY = """
safeser: 1
name: again
revision: 1
principals: {ann: {}, bea: {}}
contexts:
  - name: all
    sender: ann
    recipient: bea
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    dask: {types: ["tests.channel.test_loaded_again:Tiles"]}
"""

MSGPACK = {"serializer": "msgpack"}
DATA = Context("ann", "bea", Kind.DATA)


@pytest.fixture
def link(doors):
    one, two = doors.channel("ann", POLICY), doors.channel("bea", POLICY)
    there, back = doors.shake(one, two)
    back.message = back.verify(there.seal(None, DATA))
    return back


def test_what_checking_decoded_is_not_kept_until_it_is_loaded(link):
    frames = [msgpack.packb(bytes(1 << 20)) for _ in range(8)]
    tracemalloc.start()
    payloads = [link.payload(link.message, DATA, "x", MSGPACK, [frame]) for frame in frames]
    admitted = link.admit(link.message, DATA, payloads)
    kept, _ = tracemalloc.get_traced_memory()
    assert kept < 1 << 20
    sizes = [len(link.load_one(permitted)) for permitted in admitted.permitted]
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sizes == [1 << 20] * 8
    assert kept < 1 << 20


class Tiles:
    def __init__(self, said):
        self.said = said


class Elsewhere:
    """A function that somebody registered with distributed, and that takes its header apart."""

    def dumps(self, cls):
        return None

    def loads(self, name):
        return lambda header, frames: Tiles([header.pop("word", ""), header["more"].pop("one", "")])


def test_what_a_registered_function_takes_out_of_a_header_is_there_again(link, monkeypatch):
    monkeypatch.setattr(Tiles, "__module__", "tests.channel.test_loaded_again")
    monkeypatch.setattr(dispatch.functions, "_foreign", Elsewhere())
    header = {
        "serializer": "dask",
        "type": "tests.channel.test_loaded_again:Tiles",
        "sub-header": {"word": "first", "more": {"one": 1}},
    }
    payload = link.payload(link.message, DATA, "x", header, [])
    admitted = link.admit(link.message, DATA, [payload])
    assert [link.load(admitted)[0].said for _ in range(2)] == [["first", 1]] * 2


def test_what_two_threads_load_of_one_payload_are_two_objects(link, monkeypatch):
    payload = link.payload(link.message, DATA, "x", MSGPACK, [msgpack.packb([1])])
    [permitted] = link.admit(link.message, DATA, [payload]).permitted
    others = []
    build = building._Builder.build

    def interrupted(builder, node):
        # The second begins when the first has checked, and ends before it.
        if not others:
            others.append([])
            others.append(link.load_one(permitted))
        return build(builder, node)

    monkeypatch.setattr(building._Builder, "build", interrupted)
    assert link.load_one(permitted) is not others[1]


def test_what_was_decided_under_one_policy_is_loaded_under_its_limits(doors):
    one, two = doors.channel("ann", POLICY), doors.channel("bea", POLICY)
    there, back = doors.shake(one, two)
    message, frames = back.verify(there.seal(None, DATA)), [msgpack.packb(bytes(5000))]
    admitted = back.admit(message, DATA, [back.payload(message, DATA, "x", MSGPACK, frames)])
    newer = POLICY.replace("revision: 1", "revision: 2") + "limits: {max_array: 2000}\n"
    assert two.adopt(policy=doors.policy(newer))
    assert back.load(admitted) == [bytes(5000)]
    with pytest.raises(PayloadError):
        back.payload(message, DATA, "x", MSGPACK, frames)


# --- checked once -----------------------------------------------------------------------------


@pytest.fixture
def checks(monkeypatch):
    """Return the types of values that were checked, each as often as it was."""
    seen, real = [], receiving._checked

    def noted(node, *args):
        seen.append(node.type)
        return real(node, *args)

    monkeypatch.setattr(receiving, "_checked", noted)
    return seen


def test_what_is_loaded_again_is_checked_again_and_shares_nothing_that_changes(link, checks):
    header, frames = families.serialize(np.arange(5.0), ["dask"])
    payload = link.payload(link.message, DATA, "x", header, [bytearray(frames[0])])
    [permitted] = link.admit(link.message, DATA, [payload]).permitted
    first, second = link.load_one(permitted), link.load_one(permitted)
    assert checks == ["numpy:ndarray"] * 2
    first.flags.writeable = False
    first.shape = (5, 1)
    assert second.flags.writeable
    assert second.shape == (5,)


def test_what_is_refused_by_its_check_is_not_kept_for_the_next_admission(link):
    header = {"serializer": "dask", "type": "numpy:ndarray", "sub-header": {}}
    payload = link.payload(link.message, DATA, "x", header, [b"x"])
    for _ in range(2):
        with pytest.raises(PayloadError):
            link.admit(link.message, DATA, [payload])
