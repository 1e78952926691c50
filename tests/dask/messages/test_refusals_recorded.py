"""What a record says of a message that was refused before anything in it was judged.

The one rule: the operation that it names, if there is one of that name, and nothing of a peer's
own making.
"""

from __future__ import annotations

import pickle

import pytest

from safeser.channel import SINGLE_REFUSALS
from safeser.dask.stock.comm import GuardedBackend
from safeser.dask.transport import other_schemes
from safeser.errors import ConfigError
from safeser.policy import Policy
from safeser.policy.ready import locate


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


_FINISHED = {"op": "task-finished", "status": "OK", "run_id": 1, "stimulus_id": "s", "nbytes": 28}
_MANY = SINGLE_REFUSALS + 50


@pytest.mark.parametrize(
    ("change", "rule", "answer"),
    [
        ({"nbytes": "x"}, "operation.field-shape", "task-erred"),
        ({"zzz": 1}, "operation.unknown-field", "task-erred"),
        ({"metadata": {"a": "payload"}}, "operation.field", "task-erred"),
        ({"type": b"x"}, "raw.type", "task-finished"),
        ({}, "operation.not-granted", None),
    ],
)
def test_of_many_refusals_of_a_message_the_first_have_a_record_each(talk, change, rule, answer):
    """The others are counted; each element that a task waits for is answered."""
    t = talk("worker").worker_stream()
    if "metadata" in change:
        row = t.Row({"serializer": "pickle", "writeable": []}, (pickle.dumps(1),))
        change = {"metadata": {"a": row}}
    elif not change:
        granted = "grant: [basic, worker-reports, diagnose]"
        text = locate("demo").read_text("utf-8").replace("revision: 1\n", "revision: 2\n")
        t.far.channel.adopt(policy=Policy.parse(text.replace(granted, "grant: [identity]", 1)))
    elements = [{**_FINISHED, "key": f"k{at}"} for at in range(2 * _MANY)]
    sent = [each | change if at % 2 else each for at, each in enumerate(elements)]
    got = t.attack(sent)
    records = [each for each in t.far.audit.events if each["event"] == "refuse"]
    assert {each["rule"] for each in records} == {rule}
    assert len(records) == SINGLE_REFUSALS
    counts = [each for each in t.far.audit.counts if each[3] == rule]
    refused = 2 * _MANY if answer is None else _MANY
    assert len(counts) == refused - SINGLE_REFUSALS
    answers = [] if got is t.SKIP else [each["op"] for each in got if int(each["key"][1:]) % 2]
    assert answers == ([] if answer is None else [answer] * _MANY)


def test_the_next_message_has_records_again(talk):
    t = talk("worker").worker_stream()
    for _ in range(2):
        t.attack([{**_FINISHED, "key": "k", "nbytes": "x"}] * _MANY)
    assert len(t.refused_by_server) == 2 * SINGLE_REFUSALS
