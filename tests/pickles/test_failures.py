"""Pickled exceptions as Dask sends them, read as data."""

from __future__ import annotations

import pickle
import sys

import cloudpickle
import pytest

from safeser.errors import PolicyDenied
from safeser.pickles import exception_record, traceback_record
from tests.pickles.forging import refused
from tests.samples import opcodes as op

tblib = pytest.importorskip("tblib.pickling_support")


class CustomError(Exception):
    """Has an ``__init__`` of its own, which tblib writes with attributes."""

    def __init__(self, message, code):
        super().__init__(message, code)
        self.code = code


def raised(make):
    """Return what *make* raises, with a traceback, pickled as ``distributed`` pickles it."""
    try:
        make()
    except BaseException as error:
        tblib.install(error)
        return error
    raise AssertionError


def fail(error, cause=None, notes=()):
    def run():
        try:
            if cause:
                raise cause  # noqa: TRY301 - the point is the context
        except Exception as context:
            raise error from context
        raise error

    for note in notes:
        error.add_note(note)
    return raised(run)


def noted(error, note="n"):
    error.add_note(note)
    return error


#: What is told of an error: its name, its arguments, and its text.
TOLD = [
    (fail(ValueError("bad", 3, None)), "ValueError", ("bad", 3, None), "('bad', 3, None)"),
    (ValueError("why"), "ValueError", ("why",), "why"), (ValueError(), "ValueError", (), ""),
    (ValueError(1), "ValueError", (1,), "1"),
    (fail(ImportError("no module", name="x")), "ImportError", ("no module",), "no module"),
    (noted(UnboundLocalError("x")), "UnboundLocalError", ("x",), "x"),
]  # fmt: skip


@pytest.mark.parametrize(("error", "name", "args", "text"), TOLD)
def test_what_is_told_of_an_error(error, name, args, text):
    record = exception_record(pickle.dumps(error))
    assert (record.name, record.args, record.text) == (f"builtins:{name}", args, text)
    assert record.complete
    assert record.notes == tuple(getattr(error, "__notes__", ()))


def test_where_it_was_raised_is_told():
    record = exception_record(pickle.dumps(fail(FileNotFoundError(2, "none", "f"), notes=["a"])))
    assert (record.name, record.args[:2]) == ("builtins:FileNotFoundError", (2, "none"))
    assert (record.frames[-1].function, record.frames[-1].filename) == ("run", __file__)
    assert record.frames[-1].line > 0
    assert record.notes == ("a",)


def test_a_custom_error_with_cause():
    error = fail(CustomError("text", (1, b"x")), cause=KeyError("k"))
    record = exception_record(pickle.dumps(error))
    assert record.name == f"{CustomError.__module__}:CustomError"
    assert record.args == ("text", (1, b"x"))
    assert record.cause.name == "builtins:KeyError"
    assert record.context is None
    assert record.suppress_context
    assert record.complete


@pytest.mark.parametrize("installed", [True, False])
def test_a_refusal_has_its_rule(installed):
    refusal = PolicyDenied("no", rule="x.y", where="there", fix="do" * 20_000)
    record = exception_record(pickle.dumps(fail(refusal) if installed else refusal))
    assert (record.text, record.rule, record.where) == ("no", "x.y", "there")
    assert record.fix == "do" * 5000
    odd = PolicyDenied("no", rule=b"x.y")
    assert exception_record(pickle.dumps(odd)).rule == ""


def test_a_class_of_a_notebook_has_its_name():
    source = "class NotebookError(Exception): pass"
    space = {"__name__": "__main__"}
    exec(source, space)
    error = space["NotebookError"]("why")
    record = exception_record(cloudpickle.dumps(error))
    assert record.name == "__main__:NotebookError"
    assert record.args == ("why",)
    record = exception_record(cloudpickle.dumps(fail(error)))
    assert (record.name, record.args) == ("__main__:NotebookError", ("why",))


def test_arguments_that_are_not_plain_are_described_only():
    args = (len, [1], 2**5000, {1}, KeyError(1), (((((1,),),),),), {1: 2})
    record = exception_record(pickle.dumps(fail(ValueError(*args))))
    assert record.args[:5] == (
        "<builtins:len>",
        "<list>",
        "<a large integer>",
        "<set>",
        "<builtins:KeyError object>",
    )
    assert "<tuple>" in str(record.args[5])
    assert record.args[6] == "<dict>"


def test_a_shared_cause_is_told_once():
    inner = ValueError(0)
    for index in range(12):
        outer = ValueError(index)
        outer.__cause__ = outer.__context__ = inner
        inner = outer
    tblib.install(inner)
    record = exception_record(pickle.dumps(inner))
    assert repr(record).count("ExceptionRecord") == 13
    assert record.cause
    assert not record.context
    assert record.complete


def test_everything_is_bounded():
    error = ValueError("x" * 100_000, *range(500))
    for _ in range(200):
        error.add_note("n" * 20_000)
    for index in range(40):
        outer = ValueError(index)
        outer.__cause__ = error
        error = outer
    tblib.install(error)
    record = exception_record(pickle.dumps(error))
    depth, at = 0, record
    while at.cause:
        depth, at = depth + 1, at.cause
    assert depth == 15
    assert not at.complete
    inner = ValueError("x" * 100_000, *range(500))
    inner.__notes__ = [f"{index:03}" + "n" * 20_000 for index in range(150)]
    record = exception_record(pickle.dumps(inner))
    assert (len(record.args), len(record.args[0])) == (100, 10_000)
    assert (len(record.notes), len(record.notes[0])) == (100, 10_000)
    assert not record.complete


def _shared(length, levels):
    value = ("x",) * length
    for _ in range(levels - 1):
        value = (value,) * length
    return value


def _counted(value):
    return 1 + sum(map(_counted, value)) if isinstance(value, tuple) else 1


def test_a_part_that_is_named_again_and_again_is_not_told_each_time():
    data = pickle.dumps(ValueError(*[_shared(100, 4)] * 100))
    assert len(data) < 2000
    record = exception_record(data)
    assert not record.complete
    # A message has room for ten thousand errors.
    assert _counted(record.args) < 5 * len(data) + 1100
    [told] = exception_record(pickle.dumps(_shared(100, 4))).args
    assert _counted(told) < 5 * len(data) + 1100
    # One of them is an argument like any other.
    few = exception_record(pickle.dumps(ValueError(_shared(5, 3))))
    assert (few.args, few.complete) == ((_shared(5, 3),), True)


@pytest.mark.parametrize("part", ["args", "notes"])
def test_one_long_text_is_not_told_a_thousand_times(part):
    text = "t" * 20_000
    error = None
    for _ in range(16):
        outer = ValueError(*([text] * 100 if part == "args" else ()))
        outer.__notes__ = [text] * 100 if part == "notes" else []
        outer.__cause__ = error
        error = outer
    tblib.install(error)
    data = pickle.dumps(error)
    record = exception_record(data)
    said = 0
    while record is not None:
        said += sum(map(len, (*record.args, *record.notes)))
        record = record.cause
    assert said < 5 * len(data) + 60_000


class Line:
    """Pickles as a line of a traceback, which goes on with itself."""

    def __init__(self, **code):
        self.tb_frame, self.tb_lineno, self.tb_next = Blank(), 1, self
        self.tb_frame.f_code = Blank()
        vars(self.tb_frame.f_code).update(code)


class Blank:
    pass


@pytest.mark.parametrize("others", [0, 990, 1100])
def test_a_traceback_that_goes_on_with_itself_is_cut(others):
    names = {"co_filename": "f" * 500, "co_name": "n" * 500}
    code = {f"a{index}": None for index in range(others)} | names
    data = pickle.dumps(Line(**code))
    lines = traceback_record(data)
    said = sum(len(line.filename) + len(line.function) for line in lines)
    assert said < 5 * len(data) + 20_000
    assert bool(lines) is (others < 1000)


def test_deep_recursion_is_read_and_cut():
    def dive(depth):
        return dive(depth - 1) if depth else 1 / 0

    error = raised(lambda: dive(300))
    record = exception_record(pickle.dumps(error, 5))
    assert len(record.frames) == 200
    assert record.name == "builtins:ZeroDivisionError"
    assert len(traceback_record(pickle.dumps(error.__traceback__))) == 200
    lines = traceback_record(pickle.dumps(raised(lambda: 1 / 0).__traceback__))
    assert [line.function for line in lines] == ["raised", "<lambda>"]
    assert traceback_record(pickle.dumps("text")) == ()


@pytest.mark.parametrize("body", [
    b"N", op.value("just text"), op.name("builtins:ValueError"), op.call("builtins:getattr", "x"),
    op.call("builtins:getattr") + b")R", op.call("tblib.pickling_support:unpickle_exception"),
    op.call("tblib.pickling_support:unpickle_exception", *[None] * 12),
    op.call("tblib.pickling_support:unpickle_exception_with_attrs", *[[]] * 8),
    op.call("tblib.pickling_support:unpickle_exception", op.call("x:f"), (),
        op.call("x:f")) + b"0N",
    op.call("tblib.pickling_support:unpickle_exception", op.name("builtins:E"), None, [],
        op.call("tblib.pickling_support:unpickle_traceback")),
])  # fmt: skip
def test_what_cannot_be_read_gives_what_is_known(trap, body):
    record = exception_record(op.pickled(body))
    assert not record.complete
    hash(record)


def test_nothing_runs_or_is_imported(trap):
    body = op.call(
        "tblib.pickling_support:unpickle_exception",
        op.name("safeser_trap:fire"),
        ("x",),
        None,
        op.name("this:s"),
    )
    modules = set(sys.modules)
    assert exception_record(op.pickled(body)).name == "safeser_trap:fire"
    assert set(sys.modules) == modules
    assert len(exception_record(op.pickled(op.call("m:" + "x" * 400, "\x1b"))).name) < 200


@pytest.mark.unmeasured
@pytest.mark.parametrize(("data", "rule"), [
    (pickle.dumps("x" * (5 << 20)), "max-bytes"), (pickle.dumps([*range(150_000)]), "max-memory"),
    (pickle.dumps([complex(n, 1) for n in range(10_001)]), "max-calls"),
    (b"N0" * 250_000 + b"N.", "opcodes"), (b"nonsense", "opcode"),
])  # fmt: skip
@pytest.mark.parametrize("reads", [exception_record, traceback_record])
def test_reading_takes_what_errors_take_and_not_what_data_may(reads, data, rule):
    refused(f"pickle.{rule}", reads, data)
