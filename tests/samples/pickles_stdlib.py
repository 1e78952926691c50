"""Values of the standard library in pickles: forged ones by the rule that refuses them, and honest.

The one rule: a row differs from what its helper makes by default in what its name says.
"""

from __future__ import annotations

import configparser
import decimal
import http.client
import logging
import re
import subprocess
import urllib.error

import numpy as np

from tests.pickles.forging import Called
from tests.samples.opcodes import build, call, name, new, pairs, raw, value

ZERO = 0
MEMORY_ERROR = np._core._exceptions._ArrayMemoryError
TBLIB = "tblib.pickling_support:unpickle_exception"


def held(named, /, **fields):
    return build(new(named), fields)


def record(*without, **changed):
    fields = dict.fromkeys(vars(logging.LogRecord("", 0, "", 0, "", (), None)))
    fields |= {"args": (), "levelname": "INFO", "levelno": 20, "msg": "m", "name": "n"} | changed
    return held("logging:LogRecord", **{n: fields[n] for n in fields if n not in without})


def mail(policy="email._policybase:Compat32", **changed):
    nothing = dict.fromkeys(("_unixfrom", "_payload", "_charset", "preamble", "epilogue"))
    fields = {"policy": new(policy), "_headers": [], **nothing, "defects": []}
    fields["_default_type"] = "text/plain"
    return held("email.message:Message", **{**fields, **changed})


def header(field, content):
    return [(field, content)]


def twister(*, words=624, word=1, place=624, spare=None, version=3):
    return build(call("random:Random"), (version, (*[word] * words, place), spare))


def context(*, precision=5, signal=b"", rounding="ROUND_UP"):
    signals = [signal] if signal else []
    return call("decimal:Context", precision, rounding, -9, 9, 1, 0, signals, [])


def text_stream(text, newline):
    return build(new("_io:StringIO"), (text, newline, 0, None))


def pattern(text, flags=0):
    return call("re:_compile", text, int(flags))


def zone(key, cached=1):
    return call("zoneinfo:ZoneInfo._unpickle", key, cached)


def rebuilt(named, *attributes):
    nothing = None, None, None, False, None, ()
    return call(f"{TBLIB}_with_attrs", name(named), pairs(*attributes), *nothing)


def noted(named, attributes, notes=None, end=()):
    rest = None, None, None, False, notes, end
    return call(f"{TBLIB}_with_attrs", name(named), attributes, *rest)


def broken(*, column=1, end=2, text="("):
    return call("builtins:SyntaxError", "m", ("<file>", 1, column, text, 1, end))


def partial(function, *args):
    return build(call("functools:partial", function) + b"q\x00", (function, args, {}, None))


# fmt: off
HOSTILE = {
    "pickle.max-memory": {
        "patterns of classes of all characters": value([pattern(f"[{n}-\U0010ffff]" * 32)
            for n in "abcde"]),
        "a hundred long patterns": value([pattern(f"(?:{n}a*)" * 100) for n in range(100)]),
    },
    "pickle.unhashable": {
        "a tuple of digits as a key": {decimal.Decimal(1).as_tuple(): 1},
    },
    "pickle.build-twice": {
        "a twister that is built twice": build(twister(), (3, (), None)),
        "a record that is built twice": build(held("logging:LogRecord", x=None), {"x": None}),
        "a distribution that is built twice": build(held("statistics:NormalDist", x=None),
            {"x": None}),
        "a dict that is built twice": build(held("collections:UserDict", data={}), {"data": {}}),
    },
    "pickle.late-growth": {
        "maps that grow later by several": held("collections:ChainMap", maps=value([{}])
            + b"\x94") + b"h\x00(K\1e0",
        "headers that grow later": mail(_headers=b"]\x94") + b"h\x00K\1a0",
        "a payload that grows later": mail(_payload=b"]\x94") + b"h\x00K\1a0",
        "notes that come later": b"](" + build(call("builtins:ValueError", "x"),
            {"__notes__": b"]q\x00"}) + b"h\x00" + value("late") + b"a0e",
    },
    "pickle.arguments": {
        "a place before a line": broken(column=-2),
        "a long attribute": call("operator:attrgetter", "a" * 300),
        "an exit code that is text": Called(subprocess.CalledProcessError, None, "a"),
        "an error of a configuration by number": Called(configparser.Error, 5),
        "a read that was not whole, of a number": Called(http.client.IncompleteRead, 5, 6),
        "an axis that is a list": Called(np.exceptions.AxisError, [1]),
        "memory for a number as shape": Called(MEMORY_ERROR, 5, np.dtype("f8")),
        "memory for a dtype that is text": Called(MEMORY_ERROR, (1,), "f8"),
        "memory for a shape of text": Called(MEMORY_ERROR, (1, "a"), np.dtype("f8")),
        "an alias with values": call("types:GenericAlias", name("builtins:list"), ("x",)),
        "a method that is none": call("operator:methodcaller", 1),
        "an attribute by number": call("operator:attrgetter", 1),
        "a line that is no text": broken(text=5),
        "a place that is no number": broken(column=None, end=1.5),
        "a count of texts": call("itertools:count", "x"),
        "an address of numbers": new("urllib.parse:DefragResult", 1, 1),
        "a stat_result of text": call("os:stat_result", ("x",) * 10),
        "a struct_time of other things": call("time:struct_time", ("x",) * 9),
        "a mail's part": mail(_payload=[None]),
        "a text that is none": held("collections:UserString", data=[]),
        "a list that is none": held("collections:UserList", data={}),
        "a dict that is none": held("collections:UserDict", data=[]),
        "a section's error without its message": Called(configparser.NoSectionError, "a",
            state={"message": None}),
        "fields that were left out: CalledProcessError": rebuilt("subprocess:CalledProcessError",
            "args", ("a", 1)),
        "a reduction of functions": call("_functools:reduce", name("_operator:add"),
            (name("builtins:int"), name("builtins:str"))),
        "a union of values": call("_functools:reduce", name("_operator:or_"), (1, 2)),
        "a long union": call("_functools:reduce", name("_operator:or_"),
            (name("builtins:int"),) * 65),
        "a traceback with attributes that is text": call(f"{TBLIB}_with_attrs",
            name("builtins:ValueError"), {"args": ()}, None, "x", None, False, None, ()),
        "a traceback that is text": call(TBLIB, name("builtins:ValueError"), (), None, "x"),
        "notes that are none": build(call("builtins:ValueError", "x"), {"__notes__": None}),
        "a reason of numbers": Called(urllib.error.URLError, (1, 2)),
        "memory for more than there is": Called(MEMORY_ERROR, (1 << 63,) * 64, np.dtype("f8")),
        "a read that was not whole, before text": Called(http.client.IncompleteRead, b"a", "b"),
        "an exit code of 20,000 bits": Called(subprocess.CalledProcessError, -1 << 20_000, "a"),
        "maps that are none": held("collections:ChainMap", maps={}),
        "several texts": new("collections:UserString", "a", "b"),
        "a template of numbers": held("string:Template", template=1),
        "a deviation below zero": build(new("statistics:NormalDist"), (b"G" + bytes(8), b"G\xbf\xf0"
            + bytes(6))),
        # CPython keeps the integer; the constructor makes it a float.
        "a mean that is an integer": build(new("statistics:NormalDist"), (0, b"G\x3f\xf0"
            + bytes(6))),
        "a record's exception": record(exc_info=(None, None, None)),
        "a record's message": record(msg=[]),
        "a mail's header": mail(_headers=["ab"]),
        "a mail's charset": mail(policy="email.policy:EmailPolicy", _charset=1),
        "a twister's spare number": twister(spare="x"),
        "a struct_time too short": call("time:struct_time", (1,)),
        "a struct_time's other part": call("time:struct_time", (1,) * 9, {"n_fields": None}),
        "a stat_result's other part": call("os:stat_result", (1,) * 10, {"n_fields": 1}),
        "an address of too few parts": new("urllib.parse:SplitResult", "x"),
        "a decimal's exponent": new("decimal:DecimalTuple", 0, (), "x"),
        "a context's rounding": context(rounding="UP"),
        "a stream of another thing": build(new("_io:BytesIO"), ("x", 0, None)),
        "a text stream's line end": text_stream("x", "xyz"),
        "an iterator over what is no sequence": call("builtins:iter", {}),
        "an iterator that calls": call("builtins:iter", [], None),
        "an iterator's fields": build(call("builtins:iter", []), {}),
        "an endless repetition": call("itertools:repeat", None),
        "a pattern that is none": pattern("("),
        "a zone that is no text": call("zoneinfo:ZoneInfo._unpickle", None, 1),
        "a zone cached in another way": zone("UTC", cached=2),
        "a member that there is not": call("http:HTTPStatus", 1),
        "a member by the functional interface": call("http:HTTPStatus", "X", ["A"]),
        "a callable": call(TBLIB, name("decimal:Decimal"), (), None, None),
        "arguments that are no tuple": rebuilt("json.decoder:JSONDecodeError", "args", "ab"),
        "a name of another class": build(call("builtins:ImportError"), {1: None}),
        "a place far outside of a line": broken(column=1 << 30),
        "a span outside of its text": call("builtins:UnicodeDecodeError", "utf-8", ("x",), 0, 5,
            "why"),
        "a span of nothing": call("builtins:UnicodeEncodeError", "utf-8", "x", 1, 0, "why"),
        "a group of what is no exception": call("builtins:ExceptionGroup", "g", [None]),
        "partial of a scalar over bytes": partial(name("numpy:void"), raw(bytes(8)), "O"),
        "partial of a value": partial(None),
        # CPython would keep the number where the object has its dict.
        "partial with a number for attributes": build(call("functools:partial",
            name("builtins:len")), (name("builtins:len"), (), {}, 0)),
        "partial with keywords that are none": build(call("functools:partial",
            name("builtins:len")), (name("builtins:len"), (), {1: None}, None)),
        "attributes of the machinery": call("operator:attrgetter", "__class__"),
        "attributes that lead there": call("operator:attrgetter", "a._b"),
        "a frame": call("operator:attrgetter", "gi_frame.f_globals"),
        "an attribute without a name": call("operator:attrgetter", "a..b"),
        "a method that evaluates": call("operator:methodcaller", "eval", "x"),
        "a method of the machinery": call("operator:methodcaller", "__reduce_ex__", 2),
        "an attribute of an instance": call("builtins:getattr", "abc", "__class__"),
        "a method that shows the machinery": call("builtins:getattr", "{0.__class__}", "format"),
        "an alias of no class": call("types:GenericAlias", None, ()),
        "a class of a value": call("builtins:type", 1),
    },
    "pickle.class": {
        "no exception": call(TBLIB, name("uuid:UUID"), (), None, None),
    },
    "pickle.global": {
        "a context's signal": context(signal=name("decimal:DecimalTuple")),
        "a zone's constructor": call("zoneinfo:ZoneInfo", "UTC"),
        "a zone from a file": call("zoneinfo:ZoneInfo.from_file", None),
        "an exit": rebuilt("builtins:SystemExit", "args", ()),
        "an interrupt": call(TBLIB, name("builtins:KeyboardInterrupt"), (), None, None),
        "an exit in a group": call("builtins:BaseExceptionGroup", "g",
            [call("builtins:SystemExit")]),
        "partial of bytes as pointers": partial(name("numpy:ndarray"), (1,), "O", raw(bytes(8))),
        "partial of a class statement": partial(name("builtins:type"), "X", (), {}),
        "partial of what is not listed": partial(name("os:system"), "true"),
        "partial itself": name("functools:partial"),
    },
    "pickle.name": {
        "partial of a lambda's name": partial(name("functools:<lambda>")),
    },
    "pickle.state": {
        "a twister's older version": twister(version=2),
        "a stream's fields": build(new("_io:BytesIO"), (raw(b"x"), 0, {})),
        "a record without a level": record("levelno"),
        "a record without a path": record("pathname"),
        "a field with a space": build(call("builtins:ValueError"), {"a b": None}),
        "a traceback in a field": build(call("builtins:ValueError"), {"__traceback__": None}),
        "a class in a field": build(call("builtins:ValueError"), {"__class__": None}),
        "a method hidden by a field": build(call("builtins:ValueError"), {"with_traceback": None}),
        "a second text": build(new("collections:UserString", "a"), {"data": "b"}),
        "another field": held("collections:UserList", data=[], append=None),
        "no field": held("collections:UserDict"),
        "a template's pattern": held("string:Template", template="x", pattern=None),
        "a namespace's repr": build(new("argparse:Namespace"),
            {"_get_args": name("decimal:Clamped")}),
        "a record's method": record(getMessage="x"),
        "a mail's line end": mail(_headers=header("Subject", "x\nBcc: all")),
        "a mail's name's line end": mail(_headers=header("X\r", "x")),
        "a mail's defect": mail(defects=[None]),
        "a policy's state": build(new("email.policy:EmailPolicy"), {"header_factory": None}),
        "a mail's other field": mail(other=None),
        "too few words of a twister": twister(words=600),
        "a method": rebuilt("json.decoder:JSONDecodeError", "args", (), "__dict__",
            {"with_traceback": None}),
        "a field said in one way only": rebuilt("json.decoder:JSONDecodeError", "args", (), "doc",
            None),
        "second arguments": build(call("builtins:AttributeError", "a"), {"args": ("b",)}),
        "partial of two functions": build(call("functools:partial", name("builtins:len")),
            (name("builtins:abs"), (), {}, None)),
        "partial with attributes": build(call("functools:partial", name("builtins:len")),
            (name("builtins:len"), (), {}, {"__wrapped__": None})),
    },
    "pickle.unfinished": {
        "a UUID that holds itself": build(new("uuid:UUID") + b"q\x00", pairs("int", 1, b"h\x00",
            None)),
        "no state": new("collections:UserDict"),
        "a mail's policy": mail(policy="collections:UserDict"),
        "a stream that was never given its state": new("_io:StringIO"),
    },
    "pickle.values": {
        "a text stream's text that it would not have written": text_stream("a\nb", "\r\n"),
    },
    "value.attribute": {
        "a namespace's class": build(call("types:SimpleNamespace"), {"__class__": None}),
        "a record's class": record(__class__=None),
    },
    "value.chain-map": {
        "a map that is none": held("collections:ChainMap", maps=[[]]),
    },
    "value.number": {
        "a position before a twister's words": twister(place=-1),
        "a position behind a twister's words": twister(place=625),
        "a word of a twister too large": twister(word=1 << 32),
        "a struct_time's offset": call("time:struct_time", (1,) * 9, {"tm_gmtoff": 1 << 40}),
        "a decimal's digits": new("decimal:DecimalTuple", 0, (10,), 0),
        "a context's precision": context(precision=10**17),
        "a stream's place far behind its end": build(new("_io:BytesIO"), (raw(b"x"), 1 << 40,
            None)),
        "an iterator's place": build(call("builtins:iter", []), b"J\xff\xff\xff\xff"),
    },
    "value.pattern": {
        "a pattern of too many classes": pattern("[a]" * 33),
        "a pattern whose class takes a second": pattern("[\0-\U0010ffff]", re.IGNORECASE),
        "the same with the flag inside": pattern(r"(?i)[\x00-\U0010ffff]"),
        "a pattern that has a module imported": pattern(r"\\\N{DIGIT ONE}"),
        "a pattern's debugging": pattern("a", re.DEBUG),
    },
    "value.random-state": {
        "a twister that stands still": twister(word=0),
    },
    "value.text": {
        "a struct_time's zone": call("time:struct_time", (1,) * 9, {"tm_zone": "x" * 300}),
    },
    "value.time-zone": {
        "a zone with a line end": zone("UTC\n"),
        "a zone that is a path": zone("../../etc/passwd"),
        "a zone with a NUL": zone("UTC\0"),
        "a zone that there is not": zone("Europe/Nowhere"),
        "a file of the database that is no zone": zone("leapseconds"),
    },
}

#: Of these, the arguments say what is wrong.
UNNAMED = {
    "pickle.arguments": [
        call("builtins:complex", "1j"), call("builtins:bytearray", 5),
        call("builtins:complex", [], ZERO), call("collections:OrderedDict", {}),
        call("collections:OrderedDict", ["ab"]), build(new("uuid:UUID"), None),
        call("datetime:timedelta", b"G" + bytes(8), ZERO, ZERO),
        call(TBLIB, name("builtins:ValueError"), (), None, None, None, None),
        call("builtins:bytearray", "x", "utf-16"), call("builtins:bytes", 5),
        call("_codecs:encode", "\u0100", "latin1"), call("_codecs:encode", raw(b"x"), "latin1"),
        call("builtins:range", "a", ZERO), call("builtins:slice", ZERO, ZERO),
        call("builtins:set", "abc"), call("builtins:frozenset", {}),
        call("collections:OrderedDict", [(ZERO,)]), build(call("collections:OrderedDict"), None),
        call("collections:Counter", [ZERO]), call("collections:defaultdict", ZERO),
        call("collections:deque", "ab"), call("datetime:date", raw(b"\x07\xea\x0b\x63")),
        call("datetime:date", "abcd"), call("datetime:time", raw(b"\x00\x00\x63\x00\x00\x00")),
        call("datetime:time", raw(bytes(6)), ZERO),
        call("datetime:datetime", raw(b"\x00\x00\x01\x01" + bytes(6))),
        call("datetime:timedelta", 10 ** 10, ZERO, ZERO),
        call("datetime:timezone", call("datetime:timedelta", 99, ZERO, ZERO)),
        call("decimal:Decimal", 1), call("fractions:Fraction", "1" * 5000),
        call("fractions:Fraction", None), build(new("uuid:UUID"), {"int": 1 << 128}),
        new("uuid:UUID", ZERO), call("pathlib:PosixPath", ZERO),
        call("ipaddress:IPv4Address", "999.0.0.1"), call("ipaddress:IPv4Address", 1 << 40),
        call("array:_array_reconstructor", name("array:array"), "u", 21, raw(bytes(4))),
        call("array:_array_reconstructor", name("array:array"), "d", 16, raw(b"x")),
        call("array:_array_reconstructor", None, "b", 1, raw(b"")),
        call(TBLIB, name("builtins:ValueError"), [], None, None), call(TBLIB, None, (), None, None),
        call(TBLIB, name("builtins:ValueError"), (), 1, None),
        call(f'{TBLIB}_with_attrs', name("builtins:ValueError"), {"args": ()}, *[None] * 3, False,
            ["n"] * 101, (None,)),
        call("builtins:UnicodeDecodeError", "utf-8", raw(b"x"), -(1 << 60), 1 - (1 << 60),
            "str() would read there"),
        call("builtins:UnicodeTranslateError", "x", ZERO, 9, ""),
        build(call("builtins:ImportError"), {"name": []}), build(call("builtins:ImportError"), []),
    ],
    "pickle.state": [
        build(new("uuid:UUID"), {"int": ZERO, "x": ZERO}),
        call(f'{TBLIB}_with_attrs', name("builtins:ValueError"), {"args": (), "__class__": None},
            *[None] * 3, False, None, ()),
        call(f'{TBLIB}_with_attrs', name("builtins:ValueError"), {"args": (),
            "__dict__": {"add_note": None}}, *[None] * 3, False, None, ()),
        call(TBLIB, name("builtins:ValueError"), (), None, None, None, False, ["n"] * 101),
        build(call("builtins:ImportError"), {"__class__": None}),
    ],
    "pickle.unhashable": [
        call("builtins:set", [[]]), call("collections:OrderedDict", [([], ZERO)]),
    ],
    "value.address": [call("ipaddress:IPv4Address", "1" * 100)],
    "value.decimal": [call("decimal:Decimal", "1_0"), call("decimal:Decimal", "\u0661")],
    "value.deque": [call("collections:deque", (), -1), call("collections:deque", (), 1 << 70)],
    "value.fraction": [call("fractions:Fraction", "1/0"), call("fractions:Fraction", 1, ZERO)],
    "value.ordered-dict": [
        build(call("collections:OrderedDict"), {"x": ZERO}),
        build(call("collections:OrderedDict"), {"_metadata": ZERO}),
    ],
    "value.path": [call("pathlib:PosixPath", "a" * 40_000)],
    "value.range": [call("builtins:range", ZERO, ZERO, ZERO)],
}

#: What the helpers make by default, and older forms.
ACCEPTED = [
    mail(), mail(_headers=header("Subject", "x")), held("collections:UserList", data=[]),
    build(new("email.policy:EmailPolicy"), {}), twister(), context(), text_stream("a", "\n"),
    pattern("a", re.IGNORECASE), pattern(r"\\N"), zone("UTC"), broken(),
    value([name("builtins:len")]), partial(name("builtins:max"), 5),
    held("collections:ChainMap", maps=[{}]),
    rebuilt("json.decoder:JSONDecodeError", "args", (), "__dict__", {}),
    # Arguments may be said twice, as they are since Python 3.12.
    build(call("builtins:AttributeError", value("a") + b"q\x00"), {"args": (b"h\x00",),
        "name": "x"}),
    build(call("builtins:ValueError", "x"), {"__notes__": ["a"]}),
]

#: What the installed library cannot read any more, or what cannot be compared.
OLDER = [
    record(),
]
# fmt: on
