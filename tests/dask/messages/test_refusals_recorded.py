"""What a record says of a message that was refused before anything in it was judged.

The one rule: the operation that it names, if there is one of that name, and nothing of a peer's
own making.
"""

from __future__ import annotations

import pytest

from safeser.dask.stock.comm import GuardedBackend
from safeser.dask.transport import other_schemes
from safeser.errors import ConfigError


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
