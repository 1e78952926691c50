"""Lines that are read by the form of an earlier one, beside parsing and resolving each of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.audit.names import Resolver
from safeser.audit.reading.alike import MAX_FORMS, Forms
from safeser.audit.record import MAX_LINE, Record, parse
from safeser.errors import AuditError

MAC = "ab" * 32
GENESIS = {"type": "genesis", "version": 2, "policy_name": "p", "policy_revision": 1}
SESSION = {"type": "session", "s": 0, "id": "0123456789ab", "peer": "scheduler"}
CASE = {"event": "admit", "case": 0, "sender": "alice", "permitted": True, "s": 0, "n": 4}
EVENT = {"bytes": 812, "case": 0, "n": 5, "s": 0, "task": "sum-1"}


def line(fields: dict, *, mac: str = MAC) -> bytes:
    fields = {"seq": 0, "time": 5, **fields}
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return f'{{"mac":"{mac}","record":{text}}}'.encode("ascii")


def outcome(read, raw: bytes) -> object:
    try:
        record = read(raw)
    except AuditError as error:
        return str(error)
    # In full, and the types of the values: True is not 1.
    assert len(record.fields) == len(list(record.fields)) == len(dict(record.fields))
    values = sorted((name, type(value), value) for name, value in record.fields.items())
    return record.sequence, record.time, record.type, record.mac, repr(values)


def compare(raws: list[bytes]) -> Forms:
    plain, forms = Resolver(), Forms(Resolver())
    for raw in raws:
        assert outcome(forms.read, raw) == outcome(lambda raw: plain.resolve(parse(raw)), raw)
    return forms


def test_a_line_of_a_known_form_is_not_parsed(monkeypatch):
    forms = compare([line(each) for each in (GENESIS, SESSION, CASE, EVENT)])
    monkeypatch.setattr(forms._resolver, "read", pytest.fail)
    record = forms.read(line({**EVENT, "n": 6, "seq": 9, "time": 77}))
    assert (record.sequence, record.time, record.mac) == (9, 77, bytes.fromhex(MAC))
    assert record.fields.get("sender") == "alice"
    assert record.fields.get("task") == "sum-1"
    assert record.fields.get("decision") == "0123456789ab-6"
    assert record.fields.get("none") is None
    assert "sender" in record.fields
    assert "task" in record.fields
    assert "none" not in record.fields
    assert record.fields["message"] == 6
    assert "'bytes': 812" in repr(record)
    assert record == Record(9, 77, "event", dict(record.fields), bytes.fromhex(MAC))


@pytest.mark.parametrize(
    "raw",
    [
        *(
            line({**EVENT, name: value})
            for name, values in {
                **{"n": [0], "case": [1], "s": [7, True, None], "time": [1 << 60], "message": [3]},
                "task": ['a"b\\c\x7f\u00e9', ["a", "b"], None],
                "bytes": [-1, (1 << 53) - 1, 1 << 53, 1.0],
                **{"decision": ["x"], "type": ["odd"], "policy": ["own"], "sender": ["mallory"]},
                "UPPER": [1],
            }.items()
            for value in values
        ),
        *(line({name: EVENT[name] for name in EVENT if name != gone}) for gone in ("s", "n")),
        line(EVENT, mac="AB" * 32),
        line(EVENT, mac="zz" * 32),
        line(EVENT).replace(b'"bytes":812', b'"bytes":0812'),
        line(EVENT).replace(b'"bytes":812', b'"bytes":812,"bytes":812'),
        line(EVENT).replace(b'"bytes"', b' "bytes"'),
        line(EVENT).replace(b"sum-1", b"sum\x7f"),
        line(EVENT).replace(b"sum-1", b"sum\xff"),
        line(EVENT).replace(b"sum-1", b"x" * MAX_LINE),
        line(EVENT) + b"}",
        line(EVENT)[:-1],
        b"",
    ],
    ids=lambda raw: repr(raw[74:120]),
)
def test_a_line_that_differs(raw):
    known = [line(each) for each in (GENESIS, SESSION, CASE, EVENT)]
    compare([*known, raw, line(EVENT), raw, raw, line(EVENT)])


def test_a_file_that_says_that_it_has_version_1():
    forms = [line({**GENESIS, "version": version}) for version in (2, 1)]
    compare([forms[0], line(SESSION), line(CASE), line(EVENT), forms[1], line(EVENT), line(EVENT)])
    assert not compare([forms[1], line(EVENT), line(EVENT)])._forms


def test_what_sessions_and_cases_say_changes():
    other = {**CASE, "sender": "bob"}
    session = {**SESSION, "id": "ba9876543210"}
    policy = {"type": "policy", "policy_name": "q", "policy_revision": 2}
    known = [GENESIS, SESSION, CASE, EVENT, other, EVENT, session, EVENT, policy, EVENT]
    compare([line(each) for each in known])


def test_forms_are_bounded_and_the_last_one_is_tried_first():
    events = [{**EVENT, f"field_{n}": n} for n in range(2 * MAX_FORMS)]
    forms = compare([line(each) for each in (GENESIS, SESSION, CASE, *events, *events[:3])])
    assert len(forms._forms) == MAX_FORMS
    assert "field_2" in forms._forms[0].names


VALUES = st.sampled_from(["", "a", 'q"', "\x7f", 0, 1, -1, 1 << 53, 12.5, True, None, ["x"]])
LINES = st.one_of(
    st.dictionaries(
        st.sampled_from(["bytes", "case", "s", "n", "task", "sender", "event", "type", "message"]),
        VALUES,
    ),
    st.sampled_from([GENESIS, SESSION, CASE, EVENT, {**SESSION, "s": 1}, {**CASE, "case": 1}]),
)


@given(st.lists(LINES, max_size=12))
def test_whatever_stands_in_a_file(many):
    compare([line(each) for each in (GENESIS, SESSION, CASE, EVENT, *many, EVENT)])


@given(st.integers(0, 200), st.binary(max_size=4))
def test_any_bytes_in_place_of_others(at, noise):
    known = [line(each) for each in (GENESIS, SESSION, CASE, EVENT)]
    raw = line({**EVENT, "n": 7})
    compare([*known, raw[:at] + noise + raw[at + len(noise) :]])
