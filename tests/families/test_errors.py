"""Failures as data: what comes back as itself, and what as a name."""

import copy
import json
import linecache
import pickle
import subprocess
import sys
import traceback
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser import families
from safeser.errors import AuditError, PayloadError, PolicyDenied, SafeserError
from safeser.families import plain
from safeser.families.errors import wire as errors
from safeser.families.errors.failures import shown
from safeser.families.errors.wire import ExceptionData, RemoteError
from tests.samples.hostile.errors import GOOD, RIGHT, WRONG, failure
from tests.samples.typed import GRANT


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
        ValueError("no", 1), KeyError("missing"), ZeroDivisionError(),
        FileNotFoundError(2, "No such file", "a", None, "b"), OSError("odd"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), StopIteration(3),
        SyntaxError("bad", ("<f.py>", 1, 2, "x", 1, 3)), UserWarning("careful"), ImportError("x"),
    ],
)  # fmt: skip
def test_listed_builtins_come_back_as_themselves(exc):
    back = through(raised(exc))
    assert type(back) is type(exc)
    assert str(back) == str(exc)
    text = "".join(traceback.format_exception(back))
    assert "in fail" in text
    assert "on the process where it was raised" in text


WITHOUT_FILES = """
import resource
from safeser.families.errors import wire

resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
print(repr(wire.from_data(wire.to_data(OSError(24, "Too many open files")))))
"""


def test_a_process_that_can_open_no_file_can_say_so():
    command = [sys.executable, "-c", WITHOUT_FILES]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout == "OSError(24, 'Too many open files')\n"


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
    assert back.__context__ is None
    assert back.__suppress_context__
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
    data = ExceptionData(long, long, (object(),), long, (long,) * 50, state=(long,))
    for _ in range(50):
        data = ExceptionData("builtins:ValueError", "m", ("m",), cause=data)
    back = errors.from_data(errors.decode(errors.encode(data)))
    assert type(back) is ValueError
    short = ExceptionData(long, long, (object(),), long, (long,) * 50)
    assert type(errors.from_data(errors.decode(errors.encode(short)))) is RemoteError


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


@pytest.mark.parametrize(
    ("name", "args"),
    [
        # Names choose nothing, nor does a text that the class would not say.
        ("builtins:eval", ("1+1",)), ("os:system", ("true",)), ("builtins:SystemExit", (3,)),
        ("safeser.errors:PolicyDenied", ("x",)), ("builtins:ValueError", ("another text",)),
        ("builtins:UnicodeDecodeError", (1, 2)), ("builtins:UnicodeTranslateError", ("abc",)),
        # str() of these read the text at their positions; far below zero it ended the process.
        ("builtins:UnicodeDecodeError", ("utf-8", b"abc", -(1 << 40), 1 - (1 << 40), "r")),
        ("builtins:UnicodeDecodeError", ("utf-8", b"abc", 5, 6, "r")),
        ("builtins:UnicodeEncodeError", ("utf-8", "abc", -(1 << 40), 1 - (1 << 40), "r")),
        ("builtins:UnicodeTranslateError", ("abc", -(1 << 40), 1 - (1 << 40), "r")),
        # A traceback drew a caret for each column between.
        *((f"builtins:{cls}", ("m", ("f", 1, 1, "x", 1, 1 << 40)))
          for cls in ("SyntaxError", "IndentationError", "TabError")),
        ("builtins:SyntaxError", ("m", ("f", 1, 1 << 40, "x", 1, (1 << 40) + 2))),
        *(("builtins:SyntaxError", ("m", place))
          for place in (("f", 1, -(1 << 40), "x"), ("f", 1, 1, ["x"]), ("f", "1", 1, "x"),
                        ("f", 1, 1, b"x"), "f1xy", ())),
    ],
)  # fmt: skip
def test_what_only_a_forger_writes_is_a_name_and_a_text(name, args):
    header, frames = failure([[name, "m", args, "", [], None, None, False, [], {}, []]])
    families.check(header, frames)
    back = families.deserialize(header, frames, GRANT)
    assert type(back) is RemoteError
    assert str(back) == f"{name}: m"
    assert len("".join(traceback.format_exception(back))) < 1000


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("{}/f.py", "<f.py>"), ("<{}/f.py", "<f.py>"), (r"C:\{}\f.py", "<f.py>"),
        ("<string>", "<string>"), ("", ""), (None, None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("cls", [SyntaxError, IndentationError, TabError])
def test_nobody_opens_the_file_that_a_syntax_error_names(tmp_path, cls, name, shown):
    # As IPython does to show its line, of a file of that name on the machine of whoever looks.
    (tmp_path / "f.py").write_text("told\n", encoding="utf-8")
    name = name and name.format(tmp_path)
    back = through(cls("bad", (name, 1, 2, "x", 1, 3)))
    assert type(back) is cls
    assert (back.filename, back.text) == (shown, "x")
    assert linecache.getlines(back.filename or "") == []
    assert linecache.getlines(copy.copy(back).filename or "") == []


def group(depth=0, cls=ExceptionGroup):
    inner = [raised(KeyError("k"), ValueError("why")), raised(TypeError("t"))]
    if depth:
        inner.append(group(depth - 1))
    return raised(cls("many", inner))


def test_groups_come_back_with_their_members():
    back = through(group(2))
    assert type(back) is ExceptionGroup
    assert back.message == "many"
    key, typed, nested = back.exceptions
    assert (type(key), type(typed), type(nested)) == (KeyError, TypeError, ExceptionGroup)
    assert type(key.__cause__) is ValueError
    assert type(nested.exceptions[2]) is ExceptionGroup
    assert back.subgroup(KeyError).exceptions[0] is key


def test_a_group_of_what_would_leave_the_process():
    back = through(BaseExceptionGroup("bye", [KeyboardInterrupt(), ValueError("v")]))
    assert type(back) is ExceptionGroup
    assert [type(member) for member in back.exceptions] == [RemoteError, ValueError]


def test_a_group_of_an_own_class_is_told():
    class Own(ExceptionGroup):
        pass

    back = through(Own("many", [ValueError("inside")]))
    assert type(back) is RemoteError
    assert "many (1 sub-exception)" in str(back)


def test_large_groups_are_cut_and_say_so():
    back = through(ExceptionGroup("g", [ValueError(n) for n in range(500)]))
    assert len(back.exceptions) == 32
    assert "468 more exceptions of this group are left out." in back.__notes__
    many = ExceptionGroup("g", [ExceptionGroup("h", [ValueError(n)] * 3) for n in range(100)])
    assert 1 < len(through(many).exceptions) <= 32


def test_cause_and_context_are_kept_apart_and_shared():
    cause, handled = ValueError("cause"), KeyError("handled")
    outer = TypeError("outer")
    outer.__cause__, outer.__context__ = cause, handled
    outer.__suppress_context__ = False
    back = through(outer)
    assert (type(back.__cause__), type(back.__context__)) == (ValueError, KeyError)
    assert not back.__suppress_context__
    outer.__cause__ = outer.__context__ = cause
    back = through(outer)
    assert back.__cause__ is back.__context__


def test_a_diamond_of_causes_does_not_grow():
    link = ["builtins:ValueError", "x", ("x",), "", [], None, None, True, [], {}, []]
    links = []
    for place in range(60):
        cause = [place + 1] * 2 if place < 59 else [None, None]
        links.append([*link[:5], *cause, *link[7:]])
    back = families.deserialize({"serializer": "error"}, [plain.encode(links)], GRANT)
    depth = 0
    while back is not None:
        assert back.__cause__ is back.__context__
        back, depth = back.__cause__, depth + 1
    assert depth == 60
    again = errors.decode(errors.encode(errors.decode(plain.encode(links))))
    assert len(plain.decode(errors.encode(again))) == 60


STEERING = "\x1b]0;owned\x07\x1b[2J\r\x9b\u202e\u2028"


@pytest.mark.parametrize(
    "exc",
    [
        ValueError(STEERING), OSError(2, STEERING, "file"), ImportError(STEERING, name=STEERING),
        SyntaxError("bad", (STEERING, 1, 2, STEERING, 1, 3)),
        UnicodeDecodeError(STEERING, b"\xff", 0, 1, STEERING), Custom(STEERING, 1),
        ExceptionGroup(STEERING, [ValueError(STEERING)]),
        PolicyDenied(STEERING, where=STEERING, fix=STEERING), type(STEERING, (Exception,), {})("x"),
    ],
)  # fmt: skip
def test_no_text_of_a_peer_steers_a_terminal(exc):
    exc.add_note(STEERING)
    back = through(raised(exc, raised(KeyError(STEERING))))
    text = "".join(traceback.format_exception(back)) + str(back)
    assert not set(STEERING) & set(text) - set("owned0;]J2[")
    expected = RemoteError if type(exc).__module__ == __name__ else type(exc)
    assert type(back) is expected


def test_arguments_that_are_printed_escaped_anyway_are_kept_exactly():
    assert through(KeyError(STEERING)).args == (STEERING,)
    assert through(ValueError(1, STEERING)).args == (1, STEERING)
    text = "a\tb\nc"
    assert through(ValueError(text)).args == (text,)


def test_listed_classes_of_others_come_as_themselves_where_they_are_imported(monkeypatch):
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("{")
    back = through(caught.value)
    assert type(back) is json.JSONDecodeError
    assert (back.doc, back.pos) == ("{", 1)
    header, frames = families.serialize(caught.value, ("dask", "msgpack"))
    monkeypatch.delitem(sys.modules, "json.decoder")
    back = families.deserialize(header, frames, GRANT)
    assert type(back) is RemoteError
    assert "json.decoder" not in sys.modules


def test_a_listed_name_that_means_something_else_here_is_only_told(monkeypatch):
    monkeypatch.setattr(sys.modules["json.decoder"], "JSONDecodeError", print)
    data = ExceptionData("json.decoder:JSONDecodeError", "m", ("m", "", 0))
    assert type(errors.from_data(data)) is RemoteError


def test_plain_fields_cross_and_names_of_what_is_missing():
    exc = ValueError("x")
    exc.code, exc.live = 5, object()
    back = through(exc)
    assert vars(back) == {"code": 5}
    try:
        import no_such_module_at_all  # noqa: F401
    except ImportError as error:
        exc = error
    assert through(exc).name == "no_such_module_at_all"


@given(st.text())
def test_what_is_shown_steers_nothing_and_stays(text):
    once = shown(text)
    assert shown(once) == once
    assert once == text or set(text) - set(once)
    once.encode()
    assert not any(
        unicodedata.category(char) in ("Cc", "Cs") for char in once if char not in "\n\t"
    )


def test_a_member_of_two_groups_is_told_once():
    same = ValueError("same")
    inner = ExceptionGroup("inner", [same, KeyError("other")])
    outer = ExceptionGroup("outer", [inner, same, same])
    data = errors.to_data(outer)
    back = errors.from_data(errors.decode(errors.encode(data)))
    assert [str(member) for member in back.exceptions] == [str(inner)]
    assert back.__notes__ == ["2 more exceptions of this group are left out."]
    assert [repr(member) for member in back.exceptions[0].exceptions] == list(
        map(repr, inner.exceptions)
    )
    # Whoever described it; the one that stands first keeps it.
    told = errors.to_data(same)
    held = errors.ExceptionData("builtins:ExceptionGroup", "g", ("g",), members=(told, told))
    twice = errors.ExceptionData("builtins:ExceptionGroup", "h", ("h",), members=(held, told))
    back = errors.from_data(errors.decode(errors.encode(twice)))
    count = [len(member.exceptions) for member in back.exceptions if hasattr(member, "exceptions")]
    assert len(back.exceptions) + sum(count) == 2


@pytest.mark.parametrize(("position", "number"), sorted(RIGHT))
def test_parts_of_any_kind_where_they_fit(position, number):
    link = [*GOOD[:position], WRONG[number], *GOOD[position + 1 :]]
    back = families.deserialize(*failure([link]), GRANT)
    assert type(back) is (RemoteError if position == 2 else ValueError)
