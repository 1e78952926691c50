"""``audit:`` of a context: fewer records, and counts of the same decisions."""

from __future__ import annotations

import os

import pytest

from safeser.audit import AuditLog, read
from safeser.errors import ConfigError, PolicyDenied
from safeser.policy import Policy
from safeser.policy.questions.difference import compare
from safeser.values import Context, Kind

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
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
"""


class Code:
    """What only family cloudpickle carries."""

    def __reduce__(self):
        return os.getpid, ()


def text(*, code: str = "all", data: str = "all") -> str:
    return TEXT.format(code=code, data=data)


def hand(near, far, value, kind: Kind = Kind.DATA) -> None:
    context = Context(near.local, far.local, kind)
    far.load(far.admit_message(far.verify(near.seal(value, context)), context))


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


def test_all_is_a_record_of_each(ends):
    (ann, bea), (_, log) = ends(text())
    hand(ann, bea, 1)
    hand(ann, bea, Code())
    families, counts = of(log)
    assert len(families) == 2
    assert counts == {("suite.authenticate", True): 1}


def test_refusals_keeps_code_and_counts_the_rest(ends):
    (ann, bea), (_, log) = ends(text(code="refusals"))
    for n in range(5):
        hand(ann, bea, n)
    hand(ann, bea, Code())
    families, counts = of(log)
    assert families == ["cloudpickle"]
    assert counts["permit", True] == 5
    decided = log.activity.decisions
    assert sum(times for key, times in decided.items() if key[:3] == (True, "permit", "data")) == 6


def test_a_batch_counts_what_it_does_not_record(ends):
    (ann, bea), (_, log) = ends(text(code="refusals"))
    context = Context("ann", "bea", Kind.DATA)
    with bea.recorded_together() as records:
        for value in (1, 2, Code(), 3):
            bea.admit_message(bea.verify(ann.seal(value, context)), context, records=records)
    families, counts = of(log)
    assert families == ["cloudpickle"]
    assert counts["permit", True] == 3


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


def test_counts_has_no_record_of_what_passes(ends):
    (ann, bea), (log, _) = ends(text(data="counts"))
    for n in range(4):
        hand(bea, ann, n)
    families, counts = of(log)
    assert families == []
    assert counts["permit", True] == 4


@pytest.mark.parametrize(
    "code",
    [
        "submission: code",
        "submission: sealed\n    operations: {grant: [basic]}",
        "serializers: [msgpack, pickle, cloudpickle]\n    submission: code",
    ],
)
def test_code_is_never_only_counted(code):
    policy = f"""
safeser: 1
name: levels
revision: 1
principals: {{ann: {{}}, bea: {{}}}}
contexts:
  - name: code
    sender: ann
    recipient: bea
    audit: counts
    {code}
"""
    with pytest.raises(ConfigError) as caught:
        Policy.parse(policy)
    assert caught.value.rule == "config.audit-level"
    assert Policy.parse(policy.replace("audit: counts", "audit: refusals"))


def test_an_unknown_level_is_refused():
    with pytest.raises(ConfigError, match="audit level"):
        Policy.parse(text(data="none"))


def test_less_is_a_loosening_and_more_a_tightening():
    old = Policy.parse(text())
    new = Policy.parse(text(code="refusals", data="counts").replace("revision: 1", "revision: 2"))
    for one, other, effect in ((old, new, "loosens"), (new, old, "tightens")):
        found = {each.what: each for each in compare(one, other).settings}
        assert found["audit of code"].effect == effect
        assert found["audit of data"].effect == effect
    assert not [each for each in compare(old, old).settings if "audit" in each.what]


def test_another_name_hides_no_loosening():
    old = Policy.parse(text())
    new = Policy.parse(text(data="counts").replace("name: data", "name: other"))
    (found,) = (each for each in compare(old, new).settings if "audit" in each.what)
    assert (found.effect, found.what) == ("loosens", "audit of other")
