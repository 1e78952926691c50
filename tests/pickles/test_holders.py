"""Profile data: objects that keep everything in their fields, each of which is checked."""

from __future__ import annotations

import argparse
import email.message
import logging
import pickle
import statistics
import string
import types
from collections import ChainMap, OrderedDict, UserDict, UserList, UserString

import pytest

from safeser.errors import PayloadError, SafeserError
from safeser.pickles import loads

VALUES = [
    ChainMap({1: 2}, OrderedDict(a=1), UserDict(b=2), ChainMap({3: 4})),
    UserDict(a=[1]),
    UserList([1, {2}]),
    UserString("text"),
    types.SimpleNamespace(a=1, b=[2]),
    argparse.Namespace(a=1),
    statistics.NormalDist(1, 2.5),
]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_equal(value, protocol):
    data = pickle.dumps(value, protocol)
    got = loads(data)
    assert got == value
    assert type(got) is type(value)
    assert repr(got) == repr(value)


def test_templates():
    assert loads(pickle.dumps(string.Template("$a b"))).substitute(a=1) == "1 b"


def test_holders_may_hold_themselves():
    value = types.SimpleNamespace()
    value.me = value
    got = loads(pickle.dumps(value))
    assert got.me is got


def test_what_they_hold_may_be_held_by_others():
    inner = {1: 2}
    got = loads(pickle.dumps([UserDict(), inner, ChainMap(inner, inner)]))
    assert got[2].maps[0] is got[1]
    assert not got[0]


def test_log_records():
    record = logging.LogRecord("a", 20, "path/file.py", 3, "m %s %d", ("x", 1), None)
    record.request = "extra"
    got = loads(pickle.dumps(record))
    assert vars(got) == vars(record)
    assert got.getMessage() == "m x 1"
    assert logging.Formatter("%(levelname)s %(message)s").format(got) == "INFO m x 1"


def test_mail():
    plain = email.message.Message()
    plain["Subject"] = "one"
    plain.set_payload("text")
    whole = email.message.EmailMessage()
    parts = email.message.Message()
    parts["Content-Type"] = "multipart/mixed; boundary=xyz"
    parts.attach(plain)
    for mail in (plain, whole, parts):
        got = loads(pickle.dumps(mail))
        assert got.as_bytes() == pickle.loads(pickle.dumps(mail)).as_bytes()
        assert type(got) is type(mail)
        assert repr(vars(got.policy)) == repr(vars(pickle.loads(pickle.dumps(mail)).policy))


def held(asm, name, /, **fields):
    items = [part for field, value in fields.items() for part in (asm.text(field), value)]
    return asm.build(asm.new(name), asm.dict(*items))


def record(asm, **changed):
    fields = {
        "args": b")",
        "exc_info": b"N",
        "exc_text": b"N",
        "levelname": asm.text("INFO"),
        "levelno": b"K\x14",
        "msg": asm.text("m"),
        "name": asm.text("n"),
    }
    return held(asm, "logging:LogRecord", **{**fields, **changed})


def mail(asm, policy="email._policybase:Compat32", **changed):
    fields = {
        "policy": asm.new(policy),
        "_headers": b"]",
        "_unixfrom": b"N",
        "_payload": b"N",
        "_charset": b"N",
        "preamble": b"N",
        "epilogue": b"N",
        "defects": b"]",
        "_default_type": asm.text("text/plain"),
    }
    return held(asm, "email.message:Message", **{**fields, **changed})


def header(asm, name, value):
    return asm.list(asm.tuple(asm.text(name), asm.text(value)))


BYPASSES = {
    "a map that is none": lambda a: held(a, "collections:ChainMap", maps=a.list(b"]")),
    "maps that are none": lambda a: held(a, "collections:ChainMap", maps=a.dict()),
    "a dict that is none": lambda a: held(a, "collections:UserDict", data=b"]"),
    "a list that is none": lambda a: held(a, "collections:UserList", data=a.dict()),
    "a text that is none": lambda a: held(a, "collections:UserString", data=b"]"),
    "a second text": lambda a: a.build(
        a.new("collections:UserString", a.text("a")), a.dict(a.text("data"), a.text("b"))
    ),
    "several texts": lambda a: a.new("collections:UserString", a.text("a"), a.text("b")),
    "another field": lambda a: held(a, "collections:UserList", data=b"]", append=b"N"),
    "a field instead": lambda a: held(a, "collections:UserList", __class__=b"]"),
    "no field": lambda a: held(a, "collections:UserDict"),
    "no state": lambda a: a.new("collections:UserDict"),
    "a template of numbers": lambda a: held(a, "string:Template", template=b"K\x01"),
    "a template's pattern": lambda a: held(
        a, "string:Template", template=a.text("x"), pattern=b"N"
    ),
    "a deviation below zero": lambda a: a.build(
        a.new("statistics:NormalDist"), a.tuple(b"G" + bytes(8), b"G\xbf\xf0" + bytes(6))
    ),
    "a deviation that is none": lambda a: a.build(
        a.new("statistics:NormalDist"), a.tuple(b"G" + bytes(8), b"N")
    ),
    # CPython keeps the integer; the constructor makes it a float.
    "a mean that is an integer": lambda a: a.build(
        a.new("statistics:NormalDist"), a.tuple(b"K\x00", b"G\x3f\xf0" + bytes(6))
    ),
    "a namespace's class": lambda a: a.build(
        a.call("types:SimpleNamespace"), a.dict(a.text("__class__"), b"N")
    ),
    "a namespace's odd name": lambda a: a.build(
        a.call("types:SimpleNamespace"), a.dict(a.text("a b"), b"N")
    ),
    "a namespace's number": lambda a: a.build(
        a.call("types:SimpleNamespace"), a.dict(b"K\x01", b"N")
    ),
    "a namespace's repr": lambda a: a.build(
        a.new("argparse:Namespace"), a.dict(a.text("_get_args"), a.name("decimal:Clamped"))
    ),
    "a namespace's repr by keywords": lambda a: a.build(
        a.new("argparse:Namespace"), a.dict(a.text("_get_kwargs"), b"N")
    ),
    "a namespace's arguments": lambda a: a.call("types:SimpleNamespace", a.dict()),
    "a record's method": lambda a: record(a, getMessage=a.text("x")),
    "a record's exception": lambda a: record(a, exc_info=a.tuple(b"N", b"N", b"N")),
    "a record's object": lambda a: record(a, extra=b"]"),
    "a record's class": lambda a: record(a, __class__=b"N"),
    "a record's message": lambda a: record(a, msg=b"]"),
    "a record without": lambda a: held(a, "logging:LogRecord", msg=a.text("x")),
    "a mail's line end": lambda a: mail(a, _headers=header(a, "Subject", "x\nBcc: all")),
    "a mail's other line end": lambda a: mail(a, _headers=header(a, "Subject", "x\u2028Bcc: all")),
    "a mail's name's line end": lambda a: mail(a, _headers=header(a, "X\r", "x")),
    "a mail's header": lambda a: mail(a, _headers=a.list(a.text("ab"))),
    "a mail's defect": lambda a: mail(a, defects=a.list(b"N")),
    "a mail's part": lambda a: mail(a, _payload=a.list(b"N")),
    "a mail's policy": lambda a: mail(a, policy="collections:UserDict"),
    "a mail's charset": lambda a: mail(a, policy="email.policy:EmailPolicy", _charset=b"K\x01"),
    "a policy's state": lambda a: a.build(
        a.new("email.policy:EmailPolicy"), a.dict(a.text("header_factory"), b"N")
    ),
    "a mail's other field": lambda a: mail(a, other=b"N"),
}


@pytest.mark.parametrize("recipe", BYPASSES.values(), ids=BYPASSES.keys())
def test_bypass_unsound_fields_are_refused(asm, recipe):
    with pytest.raises(SafeserError):
        loads(asm.pickle(recipe(asm)))


def test_the_recipes_are_right_but_for_what_they_forge(asm):
    assert loads(asm.pickle(record(asm))).getMessage() == "m"
    got = loads(asm.pickle(mail(asm, _headers=header(asm, "Subject", "x"))))
    assert got["Subject"] == "x"
    assert loads(asm.pickle(held(asm, "collections:UserList", data=b"]"))) == []
    assert loads(asm.pickle(asm.build(asm.new("email.policy:EmailPolicy"), asm.dict())))


@pytest.mark.parametrize("field", ["_payload", "defects", "_headers"])
def test_bypass_a_mail_does_not_get_what_was_not_checked(asm, field):
    body = mail(asm, **{field: b"]\x94"})
    assert loads(asm.pickle(body)).get_payload() in ([], None, "x")
    with pytest.raises(PayloadError) as caught:
        loads(asm.pickle(body + b"h\x00" + asm.number(1) + b"a0"))
    assert caught.value.rule == "pickle.late-growth"


def test_bypass_maps_of_a_chain_that_come_later(asm):
    body = held(asm, "collections:ChainMap", maps=asm.list(asm.dict()) + b"\x94")
    assert loads(asm.pickle(body)).maps == [{}]
    for late in (b"h\x00" + asm.number(1) + b"a0", b"h\x00(" + asm.number(1) + b"e0"):
        with pytest.raises(PayloadError) as caught:
            loads(asm.pickle(body + late))
        assert caught.value.rule == "pickle.late-growth"
    # Nothing added is no growth, and a map in it may still be filled, as in what refers to itself.
    assert loads(asm.pickle(body + b"h\x00(e0")).maps == [{}]
    body = held(asm, "collections:ChainMap", maps=asm.list(b"}\x94"))
    assert loads(asm.pickle(body + b"h\x00" + asm.text("a") + b"Ns0")) == {"a": None}


@pytest.mark.parametrize(
    "name",
    ["collections:ChainMap", "collections:UserDict", "statistics:NormalDist", "logging:LogRecord"],
)
def test_bypass_of_state_twice_built(asm, name):
    fields = {"collections:ChainMap": ("maps", b"]"), "collections:UserDict": ("data", b"}")}
    field, value = fields.get(name, ("x", b"N"))
    body = asm.build(held(asm, name, **{field: value}), asm.dict(asm.text(field), value))
    with pytest.raises(SafeserError):
        loads(asm.pickle(body))
