"""Failures as data: what comes back as itself, what as a name, and what is refused."""

import copy
import pickle
import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser import families
from safeser.errors import AuditError, PayloadError, PolicyDenied, SafeserError
from safeser.families import errors, plain
from safeser.families.errors import ExceptionData, RemoteError
from safeser.values import Grant

GRANT = Grant("test", ("dask", "msgpack"))


def through(exc):
    header, frames = families.serialize(exc, ("dask", "msgpack"))
    assert header == {"serializer": "error"}
    assert families.derive(header, frames) == "error"
    return families.deserialize(header, frames, GRANT)


def raised(exc, cause=None):
    def fail():
        if cause is None:
            raise exc
        raise exc from cause

    try:
        fail()
    except BaseException as caught:
        return caught


@pytest.mark.parametrize(
    "exc",
    [
        ValueError("no", 1),
        KeyError("missing"),
        ZeroDivisionError(),
        FileNotFoundError(2, "No such file", "a", None, "b"),
        OSError("odd"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
        StopIteration(3),
        SyntaxError("bad", ("f.py", 1, 2, "x", 1, 3)),
        UserWarning("careful"),
        ImportError("x"),
    ],
)
def test_listed_builtins_come_back_as_themselves(exc):
    back = through(raised(exc))
    assert type(back) is type(exc)
    assert str(back) == str(exc)
    text = "".join(traceback.format_exception(back))
    assert "in fail" in text
    assert "on the process where it was raised" in text


class Custom(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


class Rude(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__


def test_other_classes_are_a_name_and_a_text():
    back = through(raised(Custom(1, object)))
    assert type(back) is RemoteError
    assert back.remote_type.endswith(":Custom")
    assert back.remote_type in str(back)
    again = through(back)
    assert (again.remote_type, again.args) == (back.remote_type, back.args)
    assert sum("where it was raised" in note for note in again.__notes__) == 1
    for twin in (copy.copy(back), pickle.loads(pickle.dumps(back))):
        assert str(twin) == str(back)
    assert str(RemoteError("x")) == "x"


@pytest.mark.parametrize("cls", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_would_leave_the_process_is_only_told(cls):
    back = through(cls(3))
    assert type(back) is RemoteError
    assert cls.__name__ in str(back)


@pytest.mark.parametrize("cls", [PolicyDenied, AuditError, PayloadError, SafeserError])
def test_own_errors_keep_their_fields(cls):
    exc = cls("no", rule="a.b", where="here", fix="Do that.")
    back = through(exc)
    assert type(back) is cls
    assert str(back) == str(exc)
    assert (back.rule, back.where, back.fix) == ("a.b", "here", "Do that.")


def test_an_exception_that_cannot_speak():
    back = through(raised(Rude()))
    assert "RuntimeError" in str(back)


def test_notes_and_causes():
    inner = KeyError("k")
    inner.add_note("look here")
    outer = raised(ValueError("v"), inner)
    back = through(outer)
    assert type(back.__cause__) is KeyError
    assert "look here" in back.__cause__.__notes__
    outer = raised(ValueError(2))
    outer.__context__ = raised(KeyError(1))
    back = through(outer)
    assert back.__cause__ is None
    assert type(back.__context__) is KeyError


def test_endless_causes_and_texts_end():
    a, b = ValueError("a"), ValueError("b")
    a.__cause__, b.__cause__ = b, a
    assert type(through(a).__cause__) is ValueError
    exc = ValueError("x")
    for n in range(1000):
        new = ValueError(str(n))
        new.__cause__ = exc
        exc = new
    through(exc)
    back = through(ValueError("y" * 100_000, "\ud800", "z" * (1 << 20)))
    assert len(str(back)) < 11_000
    exc = ValueError("n")
    exc.__notes__ = "not a list"
    through(exc)
    exc.__notes__ = ["a"] * 100 + [3]
    assert len(through(exc).__notes__) == 20
    assert len(errors.traceback_text(raised(RecursionError("d" * 200_000)))) < 101_000


def test_what_others_describe_is_cut_to_what_receivers_take():
    long = "x" * 200_000
    data = ExceptionData(long, long, (object(),), long, (long,) * 50, None, False, (long,))
    for _ in range(50):
        data = ExceptionData("builtins:ValueError", "m", ("m",), cause=data)
    back = errors.from_data(errors.decode(errors.encode(data)))
    assert type(back) is ValueError
    short = ExceptionData(long, long, (object(),), long, (long,) * 50)
    assert type(errors.from_data(errors.decode(errors.encode(short)))) is RemoteError


GOOD = ["builtins:ValueError", "x", ("x",), "", [], False, []]


@pytest.mark.parametrize("position", range(7))
@pytest.mark.parametrize("wrong", [None, 5, b"x", {}, [5], ["x"] * 30, "y" * 200_000, {"a": 1}])
def test_wrong_parts_are_refused(position, wrong):
    link = list(GOOD)
    link[position] = wrong
    try:
        back = families.deserialize({"serializer": "error"}, [plain.encode([link])], GRANT)
    except SafeserError as error:
        assert error.rule == "families.error"  # noqa: PT017 - either may be right
    else:
        assert position == 2
        assert type(back) is RemoteError


@pytest.mark.parametrize("data", [None, [], [[]], [GOOD] * 30, [GOOD[:6]], {"a": 1}])
def test_wrong_shapes_are_refused(data):
    with pytest.raises(PayloadError):
        families.check({"serializer": "error"}, [plain.encode(data)])


@pytest.mark.parametrize(
    "data",
    [
        ExceptionData("builtins:eval", "1+1", ("1+1",)),
        ExceptionData("builtins:ValueError", "another text", ("x",)),
        ExceptionData("builtins:UnicodeDecodeError", "x", (1, 2)),
        ExceptionData("os:system", "true", ("true",)),
        ExceptionData("safeser.errors:PolicyDenied", "x", ("x",)),
        ExceptionData("builtins:SystemExit", "3", (3,)),
    ],
)
def test_names_choose_nothing(data):
    assert type(errors.from_data(data)) is RemoteError


@given(
    st.text(max_size=30),
    st.text(max_size=30),
    st.none() | st.tuples() | st.tuples(st.integers() | st.text()),
    st.lists(st.text(max_size=9), max_size=3),
)
def test_any_described_failure_can_be_built_and_shown(name, message, args, notes):
    data = ExceptionData(name, message, args, "tb", tuple(notes))
    assert errors.decode(errors.encode(data)) == data
    str(errors.from_data(data))
    repr(errors.from_data(data))


def said(name, *args):
    """Return the payload of a failure whose arguments nobody but a forger would write."""
    return {"serializer": "error"}, [
        plain.encode([[f"builtins:{name}", "m", args, "", [], False, []]])
    ]


@pytest.mark.parametrize(
    ("name", "args"),
    [
        # str() of these read the text at their positions; far below zero it ended the process.
        ("UnicodeDecodeError", ("utf-8", b"abc", -(1 << 40), 1 - (1 << 40), "r")),
        ("UnicodeDecodeError", ("utf-8", b"abc", 5, 6, "r")),
        ("UnicodeEncodeError", ("utf-8", "abc", -(1 << 40), 1 - (1 << 40), "r")),
        ("UnicodeTranslateError", ("abc", -(1 << 40), 1 - (1 << 40), "r")),
        ("UnicodeTranslateError", ("abc",)),
    ],
)
def test_positions_outside_of_the_text_never_reach_the_class(name, args):
    header, frames = said(name, *args)
    families.check(header, frames)
    back = families.deserialize(header, frames, GRANT)
    assert type(back) is RemoteError
    assert str(back) == f"builtins:{name}: m"


@pytest.mark.parametrize("name", ["SyntaxError", "IndentationError", "TabError"])
@pytest.mark.parametrize(
    "place",
    [
        ("f", 1, 1, "x", 1, 1 << 40),  # a traceback drew a caret for each column between
        ("f", 1, 1 << 40, "x", 1, (1 << 40) + 2),
        ("f", 1, -(1 << 40), "x"),
        ("f", 1, 1, ["x"]),
        ("f", "1", 1, "x"),
        ("f", 1, 1, b"x"),
        "f1xy",
        (),
    ],
)
def test_a_syntax_error_that_points_nowhere_is_only_text(name, place):
    header, frames = said(name, "m", place)
    back = families.deserialize(header, frames, GRANT)
    assert type(back) is RemoteError
    assert len("".join(traceback.format_exception(back))) < 1000
