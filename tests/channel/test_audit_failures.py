"""``audit_failure:`` of a context: what passes while the log is not written, and what never."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

import pytest

from safeser.audit import AuditLog, read
from safeser.errors import AuditError, ConfigError, PolicyDenied
from safeser.policy import Policy
from safeser.policy.questions.difference import compare
from safeser.policy.schema import json_schema
from safeser.values import AuditFailure, Context, Kind

TEXT = """
safeser: 1
name: failing
revision: 1
principals: {{ann: {{}}, bea: {{}}}}
contexts:
  - name: code
    sender: ann
    recipient: bea
    serializers: [dask, msgpack, pickle, cloudpickle]
    deserializers: [dask, msgpack, pickle, cloudpickle]
    submission: code
  - name: data
    sender: bea
    recipient: ann
    audit: {level}
    audit_failure: {answer}
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations: {{grant: [basic, cluster, control]}}
"""


def text(answer: str = "go-on", *, level: str = "all") -> str:
    return TEXT.format(answer=answer, level=level)


@pytest.fixture
def full(monkeypatch):
    """Return what fills the disk while it is used."""

    @contextmanager
    def filled():
        def fail(*_: object) -> int:
            raise OSError(errno.ENOSPC, "")

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", fail)
            yield

    return filled


def hand(near, far, value, kind: Kind = Kind.DATA, operation: str | None = None) -> object:
    context = Context(near.local, far.local, kind, operation)
    return far.load(far.admit_message(far.verify(near.seal(value, context)), context))


def events(log: AuditLog, name: str = "admit") -> list:
    log.flush()
    return [each for each in read(log.path) if each.text("event") == name]


@pytest.mark.parametrize("answer", ["go-on", "queue 10"])
def test_data_passes_and_its_records_are_written_later(ends, full, answer):
    (ann, bea), (log, _) = ends(text(answer))
    with full():
        for number in range(3):
            hand(bea, ann, number)
    assert len(events(log)) == 3
    assert [each.number("kept") for each in read(log.path) if each.type == "gap"] == [3]


def test_refuse_is_what_a_context_does_that_says_nothing(ends, full):
    (ann, bea), (log, _) = ends(text("refuse"))
    with full(), pytest.raises(AuditError):
        hand(bea, ann, 1)
    assert events(log) == []


def test_a_queue_that_is_full_refuses(ends, full):
    (ann, bea), (log, _) = ends(text("queue 2"))
    with full():
        hand(bea, ann, 1)
        hand(bea, ann, 2)
        with pytest.raises(AuditError):
            hand(bea, ann, 3)
    assert len(events(log)) == 2


def test_code_is_refused_whatever_another_context_says(ends, full):
    (ann, bea), (_, log) = ends(text())
    with full(), pytest.raises(AuditError):
        hand(ann, bea, 1)
    assert events(log) == []


def test_an_operation_that_controls_a_process_is_refused(ends, full):
    (ann, bea), (log, _) = ends(text())
    with full(), pytest.raises(AuditError):
        hand(bea, ann, {}, Kind.CONTROL, "terminate")
    hand(bea, ann, {}, Kind.CONTROL, "terminate")
    assert len(events(log)) == 1


def test_a_batch_passes_as_a_whole_or_not_at_all(ends, full):
    (ann, bea), (log, _) = ends(text())

    def batch(*kinds: Kind) -> None:
        with ann.recorded_together() as records:
            for kind in kinds:
                operation = "terminate" if kind is Kind.CONTROL else None
                context = Context("bea", "ann", kind, operation)
                ann.admit_message(ann.verify(bea.seal({}, context)), context, records=records)

    with full():
        batch(Kind.DATA, Kind.DATA)
        with pytest.raises(AuditError):
            batch(Kind.DATA, Kind.CONTROL)
    assert all(each.text("kind") == "data" for each in events(log))


@pytest.mark.parametrize("level", ["all", "refusals", "counts"])
def test_what_is_only_counted_passes_as_well(ends, full, level, monkeypatch):
    monkeypatch.setattr("safeser.audit.tally.MAX_COUNTS", 1)  # so that each count is due
    (ann, bea), (log, _) = ends(text(level=level))
    with full():
        for number in range(4):
            hand(bea, ann, number)
            ann._permitted_plain(ann.inbound(Kind.ADMIN, "heartbeat_worker"), None)
    log.flush()
    counted = sum(
        row[-1]
        for each in read(log.path)
        for row in each.fields.get("counts", ())
        if row[3] == "permit"
    )
    assert counted + len(events(log)) == 8


def test_a_refusal_is_one_though_its_record_waits(ends, full):
    (ann, bea), (log, _) = ends(text())
    with full(), pytest.raises(PolicyDenied):
        ann.refuse(ann.inbound(Kind.DATA), "context.family", "it does not pass")
    assert len(events(log, "refuse")) == 1
    del bea


def test_a_sink_of_another_kind_is_asked_as_before(doors):
    class Failing:
        def record(self, event):
            raise AuditError("no", rule="audit.write")

        def record_all(self, events):
            raise AuditError("no", rule="audit.write")

        def count(self, *arguments, **options):
            return None

    near, far = (doors.channel(name, text(), audit=Failing()) for name in ("ann", "bea"))
    ann, bea = doors.shake(near, far)
    ann._permitted_plain(ann.inbound(Kind.ADMIN, "heartbeat_worker"), None)
    with pytest.raises(AuditError, match="no"):
        hand(bea, ann, 1)


# --- the policy -----------------------------------------------------------------------------------


def test_a_policy_says_what_passes():
    assert Policy.parse(text("refuse")).audit_failures == {}
    assert Policy.parse(text()).audit_failures == {"data": AuditFailure(2)}
    assert Policy.parse(text("queue 100")).audit_failures == {"data": AuditFailure(1, 100)}
    (rule,) = [each for each in Policy.parse(text("queue 100")).contexts if each.name == "data"]
    assert ("log fails", "queue 100", False) in list(rule.rows())


@pytest.mark.parametrize("answer", ["queue", "queue 0", "queue 100001", "pass", "go on", "'1'"])
def test_another_word_is_refused(answer):
    with pytest.raises(ConfigError) as caught:
        Policy.parse(text(answer))
    assert caught.value.rule == "config.audit-failure"


@pytest.mark.parametrize(
    "code",
    [
        "submission: code",
        "submission: sealed\n    operations: {grant: [basic]}",
        "serializers: [msgpack, pickle, cloudpickle]\n    submission: code",
        "serializers: [msgpack, own]",
    ],
)
@pytest.mark.parametrize("answer", ["go-on", "queue 10"])
def test_where_code_can_pass_only_refuse_loads(code, answer):
    policy = f"""
safeser: 1
name: failing
revision: 1
families: [own]
principals: {{ann: {{}}, bea: {{}}}}
contexts:
  - name: code
    sender: ann
    recipient: bea
    audit_failure: {answer}
    {code}
"""
    with pytest.raises(ConfigError, match="cannot be written") as caught:
        Policy.parse(policy)
    assert caught.value.rule == "config.audit-failure"
    assert Policy.parse(policy.replace(f"audit_failure: {answer}", "audit_failure: refuse"))


@pytest.mark.parametrize(
    ("one", "other"),
    [("refuse", "queue 1"), ("queue 1", "queue 2"), ("queue 99", "go-on"), ("refuse", "go-on")],
)
def test_what_passes_more_is_a_loosening(one, other):
    old = Policy.parse(text(one))
    new = Policy.parse(text(other).replace("revision: 1", "revision: 2"))
    for before, after, effect in ((old, new, "loosens"), (new, old, "tightens")):
        (found,) = compare(before, after).settings
        assert (found.effect, found.what) == (effect, "audit_failure of data")
    assert compare(old, old).settings == ()


def test_another_name_hides_no_loosening():
    old = Policy.parse(text("refuse"))
    new = Policy.parse(text("go-on").replace("name: data", "name: other"))
    (found,) = compare(old, new).settings
    assert (found.effect, found.what) == ("loosens", "audit_failure of other")


def test_the_schema_has_its_words():
    found = str(json_schema())
    assert "queue [1-9]" in found
