"""Stream elements that are admitted like one before them, and what is asked of them still."""

from __future__ import annotations

import pytest

from safeser.channel import Ending
from safeser.dask.messages import elements as module
from safeser.policy import Policy
from safeser.policy.ready import locate

FINISHED = {"op": "task-finished", "status": "OK", "key": "x", "run_id": 1, "nbytes": 28}


def _newer():
    return locate("demo").read_text("utf-8").replace("revision: 1\n", "revision: 2\n")


@pytest.fixture
def stream(talk):
    """A worker's stream on which one finished task was admitted already."""
    opened = talk("worker").worker_stream()
    assert opened.attack([FINISHED])[0]["key"] == "x"
    return opened


def test_an_element_like_one_before_is_not_decided_again(stream, monkeypatch):
    def decided(*_, **__):
        raise AssertionError("decided again")

    monkeypatch.setattr(module, "judge_operation", decided)
    counted = len(stream.far.audit.counts)
    got = stream.attack([FINISHED | {"key": "y"}, FINISHED | {"key": "z"}])
    assert [element["key"] for element in got] == ["y", "z"]
    assert (
        stream.far.audit.counts[counted:]
        == [("worker", "scheduler", "task-finished", "permit", True)] * 2
    )


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"key": {"a": 1}}, "operation.field-shape"),
        ({"nbytes": "many"}, "operation.field-shape"),
        ({"unheard": 1}, "operation.unknown-field"),
        ({"worker": "safeser://127.0.0.1:9"}, "stream.identity"),
    ],
)
def test_its_fields_are_asked_each_time(stream, change, rule):
    got = stream.attack([FINISHED | change])
    assert rule in stream.refused_by_server
    assert got is stream.SKIP or all("unheard" not in element for element in got)


def test_a_payload_in_it_is_decided(stream):
    stream.attack([FINISHED | {"metadata": stream.Row({"serializer": "pickle"}, (b"N.",))}])
    assert stream.refused_by_server


def test_a_policy_that_withdraws_the_operation_counts_for_the_next_element(stream):
    before, after = _newer().split("  - name: workers-report\n")
    granted = "grant: [basic, worker-reports, diagnose]"
    assert granted in after
    policy = Policy.parse(
        f"{before}  - name: workers-report\n{after.replace(granted, 'grant: [identity]', 1)}"
    )
    stream.far.channel.adopt(policy=policy)
    assert stream.attack([FINISHED]) is stream.SKIP
    assert "operation.not-granted" in stream.refused_by_server


def test_a_grant_that_has_ended_lets_nothing_be_handled(stream):
    name = "  - name: workers-report\n"
    policy = Policy.parse(_newer().replace(name, f"{name}    until: '2020-01-01'\n", 1))
    stream.far.channel.adopt(policy=policy)
    assert stream.attack([FINISHED | {"stimulus_id": "s"}]) is stream.SKIP
    assert stream.refused_by_server == ["context.ended"]


def test_nothing_is_admitted_on_a_link_that_is_over(stream):
    stream.far.over = Ending("key.retired", "worker")
    assert stream.attack([FINISHED]) is stream.SKIP
    assert "key.retired" in stream.refused_by_server


def test_a_decision_under_a_policy_that_was_replaced_meanwhile_is_not_kept(stream, monkeypatch):
    stream.server._elements.known.clear()
    real = module.judge_operation
    newer = Policy.parse(_newer())

    def replaced(*arguments, **options):
        judged = real(*arguments, **options)
        stream.far.channel.adopt(policy=newer)
        return judged

    monkeypatch.setattr(module, "judge_operation", replaced)
    stream.attack([FINISHED])
    assert stream.server._elements.known == {}


def test_what_cannot_be_counted_is_not_handled_and_its_stream_goes_on(stream):
    stream.far.audit.broken = {"count"}
    [instead] = stream.attack([FINISHED | {"key": "y", "stimulus_id": "s"}])
    assert (instead["op"], instead["key"]) == ("task-erred", "y")
    assert stream.refused_by_server == ["audit.write"]
    stream.far.audit.broken = set()
    assert stream.attack([FINISHED | {"key": "z"}])[0] == FINISHED | {"key": "z"}


def test_an_element_that_is_not_like_one_before_is_decided_beside_those_that_are(stream):
    counted = len(stream.far.audit.counts)
    got = stream.attack([FINISHED | {"key": "y"}, FINISHED | {"key": {"a": 1}}, [FINISHED]])
    assert got[0]["key"] == "y"
    assert len(stream.far.audit.counts) == counted + 1
    assert {"operation.field-shape", "operation.missing"} <= set(stream.refused_by_server)
