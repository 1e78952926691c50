"""Fields that Dask pickles by itself leave as data, and come back without a peer's bytes."""

from __future__ import annotations

import pickle
from types import MappingProxyType

import pytest
from dask.typing import no_default
from distributed.core import error_message
from distributed.protocol.serialize import Serialized, ToPickle, to_serialize
from hypothesis import given
from hypothesis import strategies as st

from safeser.dask.contents import failures
from safeser.dask.contents.failures import Failure, Relayed
from safeser.dask.messages import translate
from safeser.dask.messages.translate import outgoing
from safeser.dask.wire import fields
from safeser.errors import PayloadError, PolicyDenied
from safeser.families.errors import wire
from safeser.families.errors.wire import from_data
from safeser.operations import Server

# --- outgoing ---------------------------------------------------------------------------------


def raised(error):
    """Return what Dask writes about an error that really was raised."""
    try:
        raise error
    except type(error) as caught:
        return error_message(caught)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong"),
        FileNotFoundError(2, "No such file"),
        StopIteration(3),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        PolicyDenied("no", rule="x.y", fix="do"),
    ],
)
def test_built_in_errors_come_back_as_themselves(error):
    message = outgoing(raised(error))
    back = from_data(message["exception"].data)
    assert message["traceback"] is None
    assert str(error) in str(back)
    if not isinstance(error, UnicodeDecodeError):
        assert type(back) is type(error)
        assert back.args == error.args


class Ruled(Exception):
    def __init__(self, text):
        super().__init__(text)
        self.rule, self.where, self.fix = "x.y", "there", "do"


def test_a_refusal_comes_back_with_its_rule_and_with_what_to_change():
    refusal = PolicyDenied("no", rule="x.y", where="there", fix="do")
    back = from_data(outgoing(raised(refusal))["exception"].data)
    assert [back.rule, back.where, back.fix] == ["x.y", "there", "do"]
    assert any("Another process says so" in note for note in back.__notes__)
    other = outgoing(raised(Ruled("no")))["exception"].data
    assert other.state == ()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (ValueError("itself"), "itself"),
        (ToPickle(ValueError("wrapped")).data, "wrapped"),
        (to_serialize(ValueError("inside")), "inside"),
        (to_serialize(pickle.dumps(ValueError("pickled"))), "pickled"),
        (Serialized({}, [pickle.dumps(ValueError("again"))]), "again"),
        (Serialized({}, [b"", b""]), "text"),
        (bytearray(pickle.dumps(ValueError("array"))), "array"),
        (b"\x80no pickle", "text"),
        (5, "text"),
    ],
)
def test_however_dask_holds_an_error_it_leaves_as_data(value, says):
    message = outgoing({"status": "error", "exception": value, "exception_text": "text"})
    assert isinstance(message["exception"], Failure)
    assert says in str(from_data(message["exception"].data))


UNREADABLE = {
    "no pickle": b"junk",
    "empty": b"",
    "cut": pickle.dumps(ValueError("x"))[:-1],
    "too large": pickle.dumps(ValueError("x" * 20_000_000)),
    "no exception": pickle.dumps(["x"]),
}


@pytest.mark.parametrize("form", UNREADABLE)
def test_an_error_that_cannot_be_read_is_of_no_class_that_it_may_not_be(form):
    told = {"exception": UNREADABLE[form], "exception_text": "MyError('x')", "traceback_text": "t"}
    data = wire.decode(wire.encode(outgoing(told)["exception"].data))
    error = from_data(data)
    assert type(error) is wire.RemoteError
    assert error.remote_type == ""
    assert str(error) == ("<list>" if form == "no exception" else "MyError('x')")
    assert "t" in error.__notes__[0]


def test_an_error_whose_class_can_be_read_is_named():
    error = from_data(outgoing({"exception": pickle.dumps(Exception("x"))})["exception"].data)
    assert type(error) is Exception
    unknown = pickle.dumps(_Unlisted("x"))
    error = from_data(outgoing({"exception": unknown})["exception"].data)
    assert type(error) is wire.RemoteError
    assert error.remote_type.endswith(":_Unlisted")


class _Unlisted(Exception):
    pass


def test_what_a_peer_wrote_passes_as_it_is():
    relayed = Relayed({"serializer": "error"}, [b"x"], author="worker")
    assert outgoing({"exception": relayed})["exception"] is relayed
    failure = failures.failure_of(ValueError("x"))
    assert outgoing({"exception": failure})["exception"] == failure


def test_no_default_is_left_out():
    message = {"op": "get_metadata", "keys": ["x"], "default": no_default}
    assert outgoing(message) == {"op": "get_metadata", "keys": ["x"]}
    assert outgoing({**message, "default": None})["default"] is None


@pytest.mark.parametrize(
    ("event", "left"),
    [
        ({"message": pickle.dumps("text")}, {"message": "text"}),
        ({"message": b"junk"}, {"message": "a message that could not be read"}),
        ({"category": pickle.dumps(UserWarning)}, {"category": "builtins:UserWarning"}),
        # A warning says itself of which category it is.
        (
            {"message": pickle.dumps(FutureWarning("old")), "category": pickle.dumps(UserWarning)},
            {"message": "old", "category": "builtins:FutureWarning"},
        ),
        ({"message": pickle.dumps([1])}, {"message": "[1]"}),
        ({"message": pickle.dumps(_Unlisted)}, {"message": f"{__name__}:_Unlisted"}),
        ({"message": pickle.dumps(object())}, {"message": "a message that could not be read"}),
        ({"message": "plain", "more": 1}, {"message": "plain", "more": 1}),
        ("no event", "no event"),
    ],
)
def test_warnings_leave_as_text(event, left):
    assert outgoing({"op": "log-event", "topic": "warn", "msg": event})["msg"] == left


@pytest.mark.parametrize("header", [{}, {"serializer": "dask"}, {"serializer": "pickle"}, None])
def test_only_dasks_own_pickles_are_taken_over(header):
    with pytest.raises(PayloadError):
        translate.from_dask_pickle(header, [b""])


# --- incoming ---------------------------------------------------------------------------------


@given(st.text(max_size=300))
def test_a_remote_type_is_its_name_and_nothing_else(name):
    element = {"op": "key-in-memory", "key": "x", "type": name}
    message = translate.incoming_element(Server.CLIENT, "key-in-memory", element, [])
    made = pickle.loads(message["type"])
    assert made.__bases__ == (object,)
    assert f"{made.__module__}.{made.__qualname__}".isprintable()


def test_results_of_one_type_share_a_class():
    # One for each of ten thousand results took a second, and 20 MB that nobody looked at.
    def of(name):
        element = {"op": "key-in-memory", "key": "x", "type": name}
        told = translate.incoming_element(Server.CLIENT, "key-in-memory", element, [])["type"]
        return pickle.loads(told)

    assert of("module.Type") is of("module.Type")
    assert of("module.Type") is not of("module.Other")
    made = [of(f"module.Type{number}") for number in range(1000)]
    assert of("module.Type0") is not made[0]  # a peer's inventions are not kept for ever
    assert of("module.Type0").__name__ == "Type0"


# --- fields -----------------------------------------------------------------------------------

MESSAGE = {"a": {"b": (1, {"c": 2}), "d\x1b": 3}, "e": 4}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("", [("", MESSAGE)]),
        ("e", [("e", 4)]),
        ("a.b[]", [("a.b[0]", 1), ("a.b[1]", {"c": 2})]),
        ("a.b[].c", [("a.b[1].c", 2)]),
        ("a.*", [("a.b", MESSAGE["a"]["b"]), ("a.d", 3)]),
        ("*", [("a", MESSAGE["a"]), ("e", 4)]),
        ("[]", []),
        ("e.f", []),
        ("x.y", []),
        ("e[]", []),
    ],
)
def test_paths_find_what_fits_them(path, found):
    assert list(fields.select(MESSAGE, path)) == found


@pytest.mark.parametrize(
    ("path", "after"),
    [
        ("e", {**MESSAGE, "e": -4}),
        ("x", MESSAGE),
        ("e.x", MESSAGE),
        ("e[]", MESSAGE),
        ("a.b[].c", {**MESSAGE, "a": {**MESSAGE["a"], "b": (1, {"c": -2})}}),
    ],
)
def test_values_at_a_path_are_replaced_in_a_copy(path, after):
    kept = MappingProxyType(MESSAGE)
    assert fields.transform(MESSAGE, path, lambda value: -value) == after
    assert kept["e"] == 4
    assert fields.transform({"a": 1, "b": 2}, "*", str) == {"a": "1", "b": "2"}
