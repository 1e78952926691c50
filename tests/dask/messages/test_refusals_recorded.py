"""What a record says of a message that was refused before anything in it was judged.

The one rule: the operation that it names, if there is one of that name, and nothing of a peer's
own making.
"""

from __future__ import annotations

import pytest

from safeser.dask.messages.conversation import SKIP
from safeser.dask.stock.comm import GuardedBackend
from safeser.dask.transport import other_schemes
from safeser.dask.wire.ceilings import named_first
from safeser.errors import ConfigError

REQUESTS = [
    ({"op": "identity", "n_workers": "all"}, "identity"),
    ({"op": "gather", "keys": ["x"], "note": 1}, "gather"),
    ({"op": "gather", "who_has": {"x": ["tcp://127.0.0.1:1"]}}, "gather"),
    ({"op": "update-graph"}, "update-graph"),  # of a stream
    ({"op": "\x1b[2J"}, ""),
    ({"op": "no-such-operation"}, ""),
    ({"op": ["identity"]}, ""),
    ({"operation": "identity"}, ""),
    ([{"op": "identity"}], "identity"),
    ([{"op": "identity"}, {"op": "identity"}], ""),
]


def _refused(link):
    return [each for each in link.audit.events if not each["permitted"]]


BAD = {"__Enum__": True, "name": "x"}

#: What the reader of messages refuses. The sender's encoder writes the operation first.
MALFORMED = [
    ({"op": "identity", "note": BAD}, "identity"),
    ({"note": BAD, "op": "variable-future-received-confirm"}, "variable-future-received-confirm"),
    ({"note": BAD, "op": "no-such-operation"}, ""),
    ({"note": BAD, "op": {"op": "identity"}}, ""),
    ({"note": BAD, "op": "identity" * 100}, ""),
    ({**{str(number): BAD for number in range(64)}, "op": "identity"}, "identity"),
    ({"note": BAD}, ""),
    ([{"op": "identity", "note": BAD}], "identity"),
    (BAD, ""),
]


@pytest.mark.parametrize(("message", "operation"), [*REQUESTS, *MALFORMED])
def test_a_refused_request_is_recorded_with_its_operation(talk, message, operation):
    t = talk("bob")
    assert t.attack(message) is SKIP
    [record] = _refused(t.far)
    assert (record["operation"], record["sender"]) == (operation, "bob")


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81", b"\x81\xa2op", b"\xdf", b"\x91" * 5000])
def test_what_is_no_message_names_nothing(data):
    assert named_first(data) == ""


ELEMENTS = [
    ({"op": "cancel-keys", "keys": "x", "client": "Client-1"}, "cancel-keys"),
    ({"op": "heartbeat-client", "client": "Client-2"}, "heartbeat-client"),
    ({"op": "task-finished", "key": "x"}, "task-finished"),  # of a worker's stream
    ({"op": "identity"}, "identity"),
    ({"op": "no-such-element"}, ""),
    ({"op": 5}, ""),
    (5, ""),
    ({"op": "heartbeat-client", "note": BAD}, "heartbeat-client"),
]


@pytest.mark.parametrize(("element", "operation"), ELEMENTS)
def test_so_is_a_refused_element(talk, element, operation):
    t = talk("alice").client_stream()
    t.attack([element])
    [record] = _refused(t.far)
    assert (record["operation"], record["sender"]) == (operation, "alice")


def test_so_are_those_that_are_only_counted(talk):
    t = talk("alice").client_stream()
    t.attack([{"op": "heartbeat-client", "client": "Client-2"}] * 150)
    assert len(_refused(t.far)) == 100
    counted = [each for each in t.far.audit.counts if not each[4]]
    assert counted == [("alice", "scheduler", "heartbeat-client", "stream.identity", False)] * 50


def test_what_a_reply_says_is_no_operation(talk):
    t = talk("alice")
    t.request({"op": "identity"})
    with pytest.raises(Exception, match="pickle"):
        t.attack_back({"op": "run", "x": t.Row({"serializer": "pickle", "writeable": []}, (b".",))})
    assert {each["operation"] for each in _refused(t.near)} == {""}


@pytest.mark.parametrize("broken", [False, True])
def test_a_process_that_is_told_to_leave_its_scheme_records_it(doors, monkeypatch, broken):
    channel = doors.channel("worker", "demo")
    if broken:
        channel.audit.broken = {"refuse"}
    monkeypatch.setattr(other_schemes, "open_channels", lambda: (channel,))
    with pytest.raises(ConfigError, match="closed"):
        other_schemes._Sealed("tcp").get_connector()
    said = [(each["rule"], each["sender"], each["where"]) for each in channel.audit.events]
    assert said == ([] if broken else [("scheme.sealed", "worker", "tcp://")])


@pytest.mark.parametrize("broken", [False, True])
def test_a_guarded_client_that_is_told_to_leave_its_scheme_records_it(doors, monkeypatch, broken):
    audit = doors.channel("worker", "demo").audit
    if broken:
        audit.broken = {"refuse"}
    monkeypatch.setattr(other_schemes, "open_channels", lambda: ())
    monkeypatch.setattr(other_schemes, "_guarded", {})
    for _ in range(2):  # of two clients that share a log, once
        other_schemes.record_for("client", audit)
    with pytest.raises(ConfigError, match="closed"):
        other_schemes._Sealed("inproc").get_connector()
    with pytest.raises(ConfigError, match="never listens"):
        GuardedBackend("tcp").get_listener("127.0.0.1:0", None, True)
    said = [(each["rule"], each["sender"], each["where"]) for each in audit.events]
    left = [("scheme.sealed", "client", "inproc://"), ("scheme.guarded", "client", "tcp://")]
    assert said == ([] if broken else left)
