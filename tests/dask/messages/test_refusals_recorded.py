"""What a record says of a message that was refused before anything in it was judged.

The one rule: the operation that it names, if there is one of that name, and nothing of a peer's
own making.
"""

from __future__ import annotations

import pytest

from safeser.dask.stock.comm import GuardedBackend
from safeser.dask.transport import other_schemes
from safeser.dask.wire.ceilings import named_first
from safeser.errors import ConfigError


def _refused(link):
    return [each for each in link.audit.events if not each["permitted"]]


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81", b"\x81\xa2op", b"\xdf", b"\x91" * 5000])
def test_what_is_no_message_names_nothing(data):
    assert named_first(data) == ""


def test_refusals_that_are_only_counted_name_the_operation_too(talk):
    t = talk("alice").client_stream()
    t.attack([{"op": "heartbeat-client", "client": "Client-2"}] * 150)
    assert len(_refused(t.far)) == 100
    counted = [each for each in t.far.audit.counts if not each[4]]
    assert counted == [("alice", "scheduler", "heartbeat-client", "stream.identity", False)] * 50


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
