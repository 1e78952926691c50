"""Profile exceptions: other classes than the built-in ones, fields of one's own, and tblib."""

from __future__ import annotations

import configparser
import copyreg
import dataclasses
import decimal
import http.client
import json
import linecache
import pickle
import re
import subprocess
import sys
import tomllib
import types
import urllib.error

import numpy as np
import pytest

from safeser.errors import ConfigError, PayloadError, PolicyDenied, SafeserError
from safeser.pickles import Profile, loads
from safeser.values import Limits

PROFILE = ("data", "numpy", "exceptions")


def raised(function, *args):
    with pytest.raises(Exception) as caught:
        function(*args)
    return caught.value.with_traceback(None)


def with_fields():
    error = ValueError("text")
    error.code, error.more = 5, {"a": [1]}
    error.add_note("note")
    return error


FOREIGN = [
    with_fields(),
    raised(json.loads, "{"),
    raised(re.compile, "("),
    raised(tomllib.loads, "x"),
    raised(decimal.Decimal, "x"),
    raised(lambda: decimal.Decimal(1) / 0),
    raised(np.linalg.inv, np.zeros((2, 2))),
    raised(np.zeros(3).sum, 5),
    raised(np.empty, (10**9, 10**6)),
    subprocess.CalledProcessError(1, ["a"], b"out", b"err"),
    subprocess.TimeoutExpired("a", 3),
    urllib.error.URLError("reason"),
    configparser.NoOptionError("option", "section"),
    dataclasses.FrozenInstanceError("x"),
    np.exceptions.ComplexWarning("x"),
    OSError(2, "text", "a", None, "b"),
    ImportError("no", name="x", path="y"),
    StopIteration(5),
    ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2)])]),
    raised(compile, "(", "<file>", "exec"),
    raised(b"\xff".decode),
    raised("\ud800".encode),
    raised(lambda: None.x),
    raised(lambda: not_there),  # noqa: F821 - the point of it
]


@pytest.fixture
def without_tblib():
    """Forget what importing distributed registers; conftest.py puts it back."""
    for kind in list(copyreg.dispatch_table):
        if isinstance(kind, type) and issubclass(kind, BaseException):
            del copyreg.dispatch_table[kind]


@pytest.mark.usefixtures("without_tblib")
@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
def test_an_exception_comes_back_as_pickle_gives_it(error, protocol):
    data = pickle.dumps(error, protocol)
    got, expected = loads(data, profile=PROFILE), pickle.loads(data)
    assert type(got) is type(expected)
    assert repr(got) == repr(expected)
    assert str(got) == str(expected)
    assert repr(vars(got)) == repr(vars(expected))
    assert got.__traceback__ is None


@pytest.mark.parametrize("error", FOREIGN[:3], ids=lambda error: type(error).__name__)
def test_an_exception_comes_back_as_tblib_writes_it(error):
    tblib = pytest.importorskip("tblib.pickling_support")
    tblib.install(error)
    got = loads(pickle.dumps(error), profile=PROFILE)
    assert type(got) is type(error)
    assert repr(got) == repr(error)
    assert vars(got) == vars(error)


def test_an_os_error_under_python_2s_name_is_refused():
    """C reads a plain OSError there, which the constructor makes FileNotFoundError of."""
    tblib = pytest.importorskip("tblib.pickling_support")
    for number, protocol, exact in ((2, 2, False), (2, 4, True), (5, 2, True)):
        error = OSError(number, "gone", "file")
        made = tblib.pickle_exception(error)
        data = pickle.dumps(Reduced(made), protocol)
        if exact:
            got = loads(data, profile=PROFILE)
            assert (type(got), got.errno) == (type(error), number)
            continue
        with pytest.raises(PayloadError) as caught:
            loads(data, profile=PROFILE)
        assert caught.value.rule == "pickle.class"


class Reduced:
    """Pickles as what it is given."""

    def __init__(self, parts):
        self.parts = parts

    def __reduce__(self):
        return self.parts


@pytest.fixture
def shop(monkeypatch):
    module = types.ModuleType("safeser_shop")

    class Sold(Exception):
        def __init__(self, message, code):
            super().__init__(message, code)
            self.code = code

    class Stop(BaseException):
        pass

    class Other(Exception):
        def __new__(cls, *_):
            return ValueError("other")

    class Box:
        pass

    for made in (Sold, Stop, Other, Box):
        made.__module__, made.__qualname__ = "safeser_shop", made.__name__
        setattr(module, made.__name__, made)
    monkeypatch.setitem(sys.modules, "safeser_shop", module)
    # Classes are looked up once for the process; these live for one test.
    from safeser.pickles.shims.stdlib import exceptions as shims_exceptions

    shims_exceptions._class_of.cache_clear()
    yield module
    shims_exceptions._class_of.cache_clear()


def allowing(*names):
    return Profile.named(*PROFILE).allowing({f"safeser_shop:{n}": {"role": "class"} for n in names})


@pytest.mark.usefixtures("without_tblib")
@pytest.mark.parametrize("written_by_tblib", [False, True])
def test_an_exception_of_ones_own(shop, written_by_tblib):
    error = shop.Sold("m", 3)
    if written_by_tblib:
        pytest.importorskip("tblib.pickling_support").install(error)
    data = pickle.dumps(error)
    got = loads(data, profile=allowing("Sold"))
    assert (type(got), got.args, got.code) == (shop.Sold, ("m", 3), 3)
    with pytest.raises(PolicyDenied):
        loads(data, profile=PROFILE)


def test_nobody_opens_the_file_that_a_pickled_syntax_error_names():
    place = (__file__, 1, 2, "x", 1, 3)
    got = loads(pickle.dumps(SyntaxError("bad", place)), profile=PROFILE)
    assert got.args == ("bad", ("<test_exceptions.py>", *place[1:]))
    assert linecache.getlines(got.filename) == []
    assert loads(pickle.dumps(SyntaxError("bad", place, 5)), profile=PROFILE).args[2:] == (5,)


TBLIB = "tblib.pickling_support:unpickle_exception"


def rebuilt(asm, name, *attributes):
    nothing = [b"N", b"N", b"N", b"\x89", b"N", b")"]
    return asm.call(f"{TBLIB}_with_attrs", asm.name(name), asm.dict(*attributes), *nothing)


def broken(asm, *, column=1, end=2, text="("):
    place = asm.tuple(*[asm.value(part) for part in ("<file>", 1, column, text, 1, end)])
    return asm.call("builtins:SyntaxError", asm.text("m"), place)


BYPASSES = {
    # what ends a process or a task when it is raised again
    "an exit": lambda a: rebuilt(a, "builtins:SystemExit", a.text("args"), b")"),
    "an interrupt": lambda a: a.call(TBLIB, a.name("builtins:KeyboardInterrupt"), b")", b"N", b"N"),
    "an exit in a group": lambda a: a.call(
        "builtins:BaseExceptionGroup", a.text("g"), a.list(a.call("builtins:SystemExit"))
    ),
    # classes that are listed, but for something else
    "no exception": lambda a: a.call(TBLIB, a.name("uuid:UUID"), b")", b"N", b"N"),
    "no exception rebuilt": lambda a: rebuilt(a, "safeser_shop:Box", a.text("args"), b")"),
    "a callable": lambda a: a.call(TBLIB, a.name("decimal:Decimal"), b")", b"N", b"N"),
    "another class made": lambda a: rebuilt(a, "safeser_shop:Other", a.text("args"), b")"),
    "another class made by a call": lambda a: a.call(
        TBLIB, a.name("safeser_shop:Other"), b")", b"N", b"N"
    ),
    # fields that hide a part of the class, or lie outside of it
    "a field of the machinery": lambda a: rebuilt(
        a, "safeser_shop:Sold", a.text("args"), b")", a.text("__class__"), b"N"
    ),
    "a method": lambda a: rebuilt(
        a,
        "json.decoder:JSONDecodeError",
        a.text("args"),
        b")",
        a.text("__dict__"),
        a.dict(a.text("with_traceback"), b"N"),
    ),
    "a field said in one way only": lambda a: rebuilt(
        a, "json.decoder:JSONDecodeError", a.text("args"), b")", a.text("doc"), b"N"
    ),
    "arguments that are no tuple": lambda a: rebuilt(
        a, "json.decoder:JSONDecodeError", a.text("args"), a.text("ab")
    ),
    "a document that is no text": lambda a: a.call(
        "json.decoder:JSONDecodeError", a.text("m"), b"N", b"K\x01"
    ),
    "a name that is no text": lambda a: a.build(
        a.call("builtins:ImportError"), a.dict(a.text("name"), b"]")
    ),
    "a name of another class": lambda a: a.build(
        a.call("builtins:ImportError"), a.dict(b"K\x01", b"N")
    ),
    "second arguments": lambda a: a.build(
        a.call("builtins:AttributeError", a.text("a")),
        a.dict(a.text("args"), a.tuple(a.text("b"))),
    ),
    "second arguments of another class": lambda a: a.build(
        a.call("builtins:ValueError"), a.dict(a.text("args"), b")")
    ),
    "a place far outside of a line": lambda a: broken(a, column=1 << 30),
    "a place before a line": lambda a: broken(a, column=-2),
    "a place that is no number": lambda a: broken(a, column=None, end=1.5),
    "a line that is no text": lambda a: broken(a, text=5),
    "a span outside of its text": lambda a: a.call(
        "builtins:UnicodeDecodeError",
        *[a.value(part) for part in ("utf-8", ("x",), 0, 5, "why")],
    ),
    "a span of nothing": lambda a: a.call(
        "builtins:UnicodeEncodeError", *[a.value(part) for part in ("utf-8", "x", 1, 0, "why")]
    ),
    "a group of what is no exception": lambda a: a.call(
        "builtins:ExceptionGroup", a.text("g"), a.list(b"N")
    ),
}


@pytest.mark.parametrize("recipe", BYPASSES.values(), ids=BYPASSES.keys())
def test_bypass_forged_exceptions_are_refused(asm, shop, recipe):
    with pytest.raises(SafeserError):
        loads(asm.pickle(recipe(asm)), profile=allowing("Sold", "Other", "Box"))


class Forged:
    """Pickles as a call of *kind* with *args*, and then BUILD with *fields*."""

    def __init__(self, kind, *args, **fields):
        self.made = (kind, args, fields)

    def __reduce__(self):
        kind, args, fields = self.made
        return (kind, args, fields) if fields else (kind, args)


MEMORY_ERROR = type(raised(np.empty, (10**9, 10**6)))
UNPRINTABLE = [
    Forged(subprocess.CalledProcessError, None, "a"),
    Forged(subprocess.CalledProcessError, 1, "a", returncode="x"),
    Forged(subprocess.CalledProcessError, -1 << 20_000, "a"),
    Forged(configparser.Error, 5),
    Forged(configparser.NoSectionError, "a", message=None),
    Forged(http.client.IncompleteRead, 5, 6),
    Forged(http.client.IncompleteRead, b"a", "b"),
    Forged(np.exceptions.AxisError, [1]),
    Forged(MEMORY_ERROR, 5, np.dtype("f8")),
    Forged(MEMORY_ERROR, (1,), "f8"),
    Forged(MEMORY_ERROR, (1, "a"), np.dtype("f8")),
    Forged(MEMORY_ERROR, (1 << 63,) * 64, np.dtype("f8")),
    Forged(urllib.error.URLError, (1, 2)),
]


@pytest.mark.parametrize("forged", UNPRINTABLE)
def test_bypass_an_exception_that_fails_whoever_prints_it(forged):
    with pytest.raises(Exception):  # noqa: B017 - each fails in its own way
        str(pickle.loads(pickle.dumps(forged)))
    with pytest.raises(PayloadError) as caught:
        loads(pickle.dumps(forged), profile=PROFILE)
    assert caught.value.rule == "pickle.arguments"


def test_bypass_an_exception_whose_fields_were_left_out(asm):
    for name in ("subprocess:TimeoutExpired", "subprocess:CalledProcessError"):
        args = asm.tuple(asm.text("a"), asm.number(1))
        with pytest.raises(PayloadError):
            loads(asm.pickle(rebuilt(asm, name, asm.text("args"), args)), profile=PROFILE)


@pytest.mark.parametrize("error", FOREIGN, ids=lambda error: type(error).__name__)
def test_whatever_tblib_writes_can_be_printed(error):
    tblib = pytest.importorskip("tblib.pickling_support")
    tblib.install(error)
    assert str(loads(pickle.dumps(error), profile=PROFILE)) == str(error)


def test_arguments_may_be_said_twice_as_since_python_3_12(asm):
    text = asm.text("a") + b"q\x00"
    body = asm.build(
        asm.call("builtins:AttributeError", text),
        asm.dict(asm.text("args"), asm.tuple(b"h\x00"), asm.text("name"), asm.text("x")),
    )
    got = loads(asm.pickle(body), profile="exceptions")
    assert (got.args, got.name) == (("a",), "x")


def test_bypass_a_long_document_that_many_errors_share_is_charged(asm):
    text = asm.text("\n" * 400_000) + b"q\x00"
    error = asm.call("json.decoder:JSONDecodeError", asm.text("m"), b"h\x00", b"K\x01")
    few = Limits(max_refs=12_000, max_sharing=99)
    with pytest.raises(SafeserError) as caught:
        loads(asm.pickle(asm.tuple(text, *[error] * 1000)), profile=PROFILE, limits=few)
    assert caught.value.rule == "pickle.max-refs"


@pytest.mark.usefixtures("without_tblib")
def test_an_exception_that_ends_things_cannot_be_allowed():
    with pytest.raises(ConfigError, match="standard library"):
        Profile.named("exceptions").allowing({"builtins:KeyboardInterrupt": "class"})


def test_bypass_what_is_no_traceback_does_not_stand_for_one(asm):
    """CPython fails there: what stands beside the error is a traceback or None."""
    for function in ("unpickle_exception", "unpickle_exception_with_attrs"):
        long = function.endswith("attrs")
        state = asm.dict(asm.text("args"), b")") if long else b")"
        rest = (b"N", b"\x89", b"N", b")") if long else ()

        def made(trace, function=function, state=state, rest=rest):
            name = asm.name("builtins:ValueError")
            whole = f"tblib.pickling_support:{function}"
            return asm.pickle(asm.call(whole, name, state, b"N", trace, *rest))

        assert type(loads(made(b"N"), profile=PROFILE)) is ValueError
        for trace in (b"\x89", b"K\x01", b")", asm.text("x")):
            with pytest.raises(PayloadError):
                loads(made(trace), profile=PROFILE)


def test_notes_are_a_list_and_do_not_grow_later(asm):
    """Known bypass of exactness: None was dropped, and notes added later were not in the copy."""

    def built(notes):
        made = asm.call("builtins:ValueError", asm.text("x"))
        return asm.build(made, asm.dict(asm.text("__notes__"), notes))

    whole = asm.list(asm.text("a"))
    assert loads(asm.pickle(built(whole)), profile=PROFILE).__notes__ == ["a"]
    later = b"](" + built(b"]q\x00") + b"h\x00" + asm.text("late") + b"a0e."
    for data in (asm.pickle(built(b"N")), asm.pickle(later[:-1])):
        with pytest.raises(PayloadError) as refusal:
            loads(data, profile=PROFILE)
        assert refusal.value.rule in ("pickle.arguments", "pickle.late-growth")
