"""``audit:`` and ``audit_failure:`` of a context: what is a record, and what passes without one.

The one rule: code is never only counted, and never passes unrecorded.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager

import pytest

from safeser.audit import AuditLog, read
from safeser.errors import AuditError, ConfigError, PolicyDenied
from safeser.gate.values import AuditFailure, Context, Kind
from safeser.policy import Policy
from safeser.policy.questions.difference import compare
from safeser.policy.schema import json_schema
from tests.refusal import refusal

TEXT = """
safeser: 1
name: levels
revision: 1
principals: {{ann: {{}}, bea: {{}}}}
contexts:
  - name: code
    sender: ann
    recipient: bea
    audit: {code}
    serializers: [dask, msgpack, pickle, cloudpickle]
    deserializers: [dask, msgpack, pickle, cloudpickle]
    submission: code
  - name: data
    sender: bea
    recipient: ann
    audit: {data}
    audit_failure: {answer}
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations: {{grant: [basic, cluster, control]}}
"""


class Code:
    """What only family cloudpickle carries."""

    def __reduce__(self):
        return os.getpid, ()


def text(answer: str = "refuse", *, code: str = "all", data: str = "all") -> str:
    return TEXT.format(answer=answer, code=code, data=data)


def hand(near, far, value, kind: Kind = Kind.DATA, operation: str | None = None) -> object:
    context = Context(near.local, far.local, kind, operation)
    return far.load(far.admit_message(far.verify(near.seal(value, context)), context))


def events(log: AuditLog, name: str = "admit") -> list:
    log.flush()
    return [each for each in read(log.path) if each.text("event") == name]


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


def of(log: AuditLog) -> tuple[list[str], dict[tuple[str, bool], int]]:
    """Return families of the permitted events, and the counts by rule and outcome."""
    log.flush()
    families, counts = [], {}
    for record in read(log.path):
        if record.type == "event" and record.text("event") == "admit":
            families.append(record.text("family"))
        for sender, recipient, _, rule, permitted, times in record.fields.get("counts", ()):
            assert {sender, recipient} == {"ann", "bea"}
            counts[rule, permitted] = counts.get((rule, permitted), 0) + times
    return families, counts


@pytest.mark.parametrize(("level", "recorded"), [("all", 4), ("refusals", 1)])
@pytest.mark.parametrize("together", [True, False])
def test_refusals_keeps_code_and_counts_the_rest(ends, level, recorded, together):
    (ann, bea), (_, log) = ends(text(code=level))
    context = Context("ann", "bea", Kind.DATA)
    values = [1, 2, Code(), 3]
    if together:
        with bea.recorded_together() as records:
            for value in values:
                bea.admit_message(bea.verify(ann.seal(value, context)), context, records=records)
    else:
        for value in values:
            hand(ann, bea, value)
    families, counts = of(log)
    assert len(families) == recorded
    assert "cloudpickle" in families
    assert counts.get(("permit", True), 0) == 4 - recorded
    decided = log.activity.decisions
    assert sum(times for key, times in decided.items() if key[:3] == (True, "permit", "data")) == 4


@pytest.mark.parametrize(("level", "recorded"), [("all", 3), ("refusals", 3), ("counts", 0)])
def test_refusals_are_records_unless_the_context_counts(ends, level, recorded):
    (ann, bea), (log, _) = ends(text(data=level))
    context = ann.inbound(Kind.DATA)
    for _ in range(3):
        with pytest.raises(PolicyDenied):
            ann.refuse(context, "context.family", "it does not pass")
    log.flush()
    refused = [each for each in read(log.path) if each.text("event") == "refuse"]
    assert len(refused) == recorded
    counted = of(log)[1].get(("context.family", False), 0)
    assert recorded + counted == 3
    assert log.activity.decisions[False, "context.family", "data", ""] == 3
    del bea


# --- while the log is not written -----------------------------------------------------------------


@pytest.mark.parametrize("answer", ["go-on", "queue 10"])
def test_data_passes_and_its_records_are_written_later(ends, full, answer):
    (ann, bea), (log, _) = ends(text(answer))
    with full():
        for number in range(3):
            hand(bea, ann, number)
    assert len(events(log)) == 3
    assert [each.number("kept") for each in read(log.path) if each.type == "gap"] == [3]


#: What the context of data says, how much of it passes before one is refused, and what that is.
UNWRITTEN = [
    ("refuse", 0, Kind.DATA, None),
    ("queue 2", 2, Kind.DATA, None),
    ("go-on", 0, Kind.CONTROL, "terminate"),
]


@pytest.mark.parametrize(("answer", "passing", "kind", "operation"), UNWRITTEN)
def test_what_may_not_pass_unrecorded_is_refused(ends, full, answer, passing, kind, operation):
    (ann, bea), (log, _) = ends(text(answer))
    with full():
        for _ in range(passing):
            hand(bea, ann, {}, kind, operation)
        with pytest.raises(AuditError):
            hand(bea, ann, {}, kind, operation)
    assert len(events(log)) == passing
    hand(bea, ann, {}, kind, operation)
    assert len(events(log)) == passing + 1


def test_code_is_refused_whatever_another_context_says(ends, full):
    (ann, bea), (_, log) = ends(text("go-on"))
    with full(), pytest.raises(AuditError):
        hand(ann, bea, 1)
    assert events(log) == []


def test_a_batch_passes_as_a_whole_or_not_at_all(ends, full):
    (ann, bea), (log, _) = ends(text("go-on"))

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
    (ann, bea), (log, _) = ends(text("go-on", data=level))
    with full():
        for number in range(4):
            hand(bea, ann, number)
            ann._permitted_plain(ann.inbound(Kind.ADMIN, "heartbeat_worker"), None)
    families, counts = of(log)
    assert counts["permit", True] + len(families) == 8


def test_a_refusal_is_one_though_its_record_waits(ends, full):
    (ann, bea), (log, _) = ends(text("go-on"))
    with full(), pytest.raises(PolicyDenied):
        ann.refuse(ann.inbound(Kind.DATA), "context.family", "it does not pass")
    assert len(events(log, "refuse")) == 1
    del bea


# --- the policy -----------------------------------------------------------------------------------


def test_a_policy_says_what_passes():
    for answer, found in (
        ("refuse", {}),
        ("go-on", {"data": AuditFailure(2)}),
        ("queue 100", {"data": AuditFailure(1, 100)}),
    ):
        assert Policy.parse(text(answer)).audit_failures == found
    assert "queue [1-9]" in str(json_schema())


@pytest.mark.parametrize("answer", ["queue", "queue 0", "queue 100001", "pass", "go on", "'1'"])
def test_another_word_is_refused(answer):
    with refusal(ConfigError, "config.audit-failure"):
        Policy.parse(text(answer))
    with pytest.raises(ConfigError):
        Policy.parse(text(data="none"))


CODE = [
    "submission: code",
    "submission: sealed\n    operations: {grant: [basic]}",
    "serializers: [msgpack, pickle, cloudpickle]\n    submission: code",
]
FAMILY = "serializers: [msgpack, own]"  # which may be only counted

#: What lets code pass, what would say too little of it, the rule, and what says enough.
LEAST = [
    *((code, "audit: counts", "config.audit-level", "audit: refusals") for code in CODE),
    *(
        (code, f"audit_failure: {answer}", "config.audit-failure", "audit_failure: refuse")
        for code in (*CODE, FAMILY)
        for answer in ("go-on", "queue 10")
    ),
]


@pytest.mark.parametrize(("code", "says", "rule", "enough"), LEAST)
def test_code_is_never_only_counted_and_passes_no_log_that_fails(code, says, rule, enough):
    policy = f"""
safeser: 1
name: levels
revision: 1
families: [own]
principals: {{ann: {{}}, bea: {{}}}}
contexts:
  - name: code
    sender: ann
    recipient: bea
    {says}
    {code}
"""
    with pytest.raises(ConfigError) as caught:
        Policy.parse(policy)
    assert caught.value.rule == rule
    assert Policy.parse(policy.replace(says, enough))


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        ({"answer": "refuse"}, {"answer": "queue 1"}, "audit_failure"),
        ({"answer": "queue 1"}, {"answer": "queue 2"}, "audit_failure"),
        ({"answer": "queue 99"}, {"answer": "go-on"}, "audit_failure"),
        ({"answer": "refuse"}, {"answer": "go-on"}, "audit_failure"),
        ({}, {"data": "refusals"}, "audit"),
        ({}, {"data": "counts"}, "audit"),
    ],
)
def test_less_is_a_loosening_and_more_a_tightening(one, other, what):
    old, less = Policy.parse(text(**one)), text(**other)
    for name in ("data", "other"):  # another name hides nothing
        renamed = Policy.parse(less.replace("name: data", f"name: {name}"))
        (found,) = (each for each in compare(old, renamed).settings if "audit" in each.what)
        assert (found.effect, found.what) == ("loosens", f"{what} of {name}")
    (found,) = compare(Policy.parse(less), old).settings
    assert (found.effect, found.what) == ("tightens", f"{what} of data")
