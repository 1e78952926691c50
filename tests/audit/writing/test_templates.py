"""Events that are encoded with the text of an earlier one, beside the way that the others take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.audit import SessionFacts, read
from safeser.audit.names import CASE_FIELDS
from safeser.audit.state import Draft, initial_state
from safeser.audit.writing.templates import MAX_SHAPES
from safeser.errors import AuditError
from safeser.gate.event import encode

POLICY = ("production", 7, "ab" * 32)
HERE = SessionFacts("0123456789ab", {"address": "10.0.0.7:1", "peer": "scheduler"})
ADMIT = {
    **{"event": "admit", "sender": "scheduler", "recipient": "worker", "kind": "task"},
    **{"operation": "compute-task", "family": "sealed", "author": "alice", "where": "run_spec"},
    **{"bytes": 812, "rule": "permit", "permitted": True, "session": HERE, "message": 1},
    "task": "sum-0123456789abcdef",
}


class Text(str):
    __slots__ = ()


VALUES = st.sampled_from(
    [
        *("", "a", "b.c", "x[0]", "d" * 40, "e" * 256, "f" * 257, "g" * 900, "%s", 'q"\\', "\x7f"),
        *("ü\ud800\n", True, False, None, 0, 1, -1, 1 << 60, -(1 << 60), ["x"], ("x",) * 70),
        Text("a"),
    ]
)
EVENTS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from([*CASE_FIELDS, "bytes", "task", "digest"]), VALUES),
        st.sampled_from([(), ("where",), ("session", "message"), ("bytes", "task")]),
        st.booleans(),
    ),
    max_size=12,
)


def drawn(many) -> list[dict]:
    """Return some events, each as it is and once more: the second may have a template."""
    events = []
    for changes, missing, alone in many:
        base = {} if alone else {k: v for k, v in ADMIT.items() if k not in missing}
        events += [{**base, **changes}, {**base, **changes, "bytes": 7}, dict(base)]
    return events


def bodies(events, *, plain: bool) -> tuple[list[bytes], object]:
    """Return what a log writes of *events*, and what its metrics count."""
    state, written, counted = initial_state(POLICY), [], {}
    for event in events:
        draft = Draft(state, 1_795_000_000_000_000, first=len(written))
        draft.add_events((event,), plain=plain)
        state = draft.state
        for key, times in draft.seen[0].items():
            counted[key] = counted.get(key, 0) + times
        for each in draft.records:
            number = len(written)
            written.append(each if isinstance(each, bytes) else encode({**each, "seq": number}))
    return written, counted


@given(EVENTS)
def test_a_template_gives_the_bytes_that_naming_and_encoding_give(many):
    events = drawn(many)
    assert bodies(events, plain=False) == bodies(events, plain=True)


@pytest.mark.parametrize(
    "change",
    [
        *({"task": value} for value in ("x" * 257, '\x7f%s"\\\n')),
        *({"bytes": value} for value in (1 << 60, True, None)),
        *({"permitted": value} for value in (1, False)),
        *({"where": value} for value in ("a.b.c", "long" * 30, ["a"])),
        *({"sender": ["a"]}, {"rule": Text("permit")}, {"reason": "why"}),
        {"session": SessionFacts("ba9876543210", {})},
    ],
    ids=str,
)
def test_one_field_that_differs(change):
    events = [ADMIT, {**ADMIT, **change}, ADMIT, {**ADMIT, **change}, {**ADMIT, **change}]
    assert bodies(events, plain=False) == bodies(events, plain=True)


def test_texts_that_together_are_too_long_are_cut_as_before():
    long = dict.fromkeys((f"field_{n}" for n in range(17)), "x" * 250)
    events = [{**ADMIT, **long}, {**ADMIT, **{**long, "field_3": "y"}}, {**ADMIT, **long}]
    assert bodies(events, plain=False) == bodies(events, plain=True)


def test_a_template_is_not_of_a_case_whose_record_failed(make, monkeypatch):
    log = make()
    log.record({**ADMIT, "rule": "first"})
    other = {**ADMIT, "rule": "second"}

    def full(*_: object) -> int:
        raise OSError(28, "")

    with monkeypatch.context() as patch:
        patch.setattr("os.write", full)
        with pytest.raises(AuditError, match="No space"):
            log.record_all([other, other])
    log.record_all([{**ADMIT, "rule": "third"}, other, other])
    found = [each.text("rule") for each in read(log.path) if each.type == "event"]
    assert found == ["first", "third", "second", "second"]


def test_the_next_file_begins_without_templates(make):
    log = make()
    for _ in range(3):
        log.record(ADMIT)
    state = log._present[1].state
    assert state.templates._shapes
    assert not state.in_new_file(0).templates._shapes


def test_shapes_are_bounded():
    draft = Draft(initial_state(POLICY), 0, first=0)
    for n in range(2 * MAX_SHAPES):
        draft.add_events([{**ADMIT, f"field_{n}": n}, {**ADMIT, f"field_{n}": n}], plain=False)
    assert len(draft.state.templates._shapes) == MAX_SHAPES
