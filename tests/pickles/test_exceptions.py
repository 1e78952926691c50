"""Profile exceptions: what tblib writes, classes that somebody allows, and what ends things."""

from __future__ import annotations

import copy
import linecache
import pickle
import sys
import types

import pytest
from tblib import pickling_support as tblib

from safeser.errors import PolicyDenied, SafeserError
from safeser.gate.values import Limits
from safeser.pickles import Profile, loads
from safeser.pickles.shims.stdlib import exceptions as shims_exceptions
from tests.pickles.forging import Called, refused
from tests.samples.opcodes import call, name, pickled, value
from tests.samples.pickles_honest import STDLIB
from tests.samples.pickles_stdlib import TBLIB, rebuilt

PROFILE = ("data", "numpy", "exceptions")
ERRORS = [error for error in STDLIB if isinstance(error, BaseException)]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_exception_comes_back_as_tblib_writes_it(error):
    with pytest.raises(PolicyDenied):
        loads(pickle.dumps(error))
    tblib.install(error)
    got = loads(pickle.dumps(error), profile=PROFILE)
    assert type(got) is type(error)
    assert str(got) == str(error)
    assert repr(vars(got)) == repr(vars(error))
    assert got.__traceback__ is None


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_causes_and_notes_come_along(error):
    raised = copy.copy(error)
    try:
        try:
            raise KeyError("cause")  # noqa: TRY301 - the point is the cause
        except KeyError as cause:
            raise raised from cause
    except BaseException as caught:
        caught.add_note("note")
        tblib.install(caught)
        got = loads(pickle.dumps(caught), profile=PROFILE)
    assert repr(got.__cause__) == "KeyError('cause')"
    assert got.__suppress_context__
    assert got.__notes__[-1] == "note"


@pytest.mark.parametrize(("number", "protocol"), [(2, 2), (2, 4), (5, 2)])
def test_an_os_error_under_python_2s_name_is_refused(number, protocol):
    """C reads a plain OSError there, which the constructor makes FileNotFoundError of."""
    error = OSError(number, "gone", "file")
    function, args = tblib.pickle_exception(error)
    data = pickle.dumps(Called(function, *args), protocol)
    if (number, protocol) == (2, 2):
        refused("pickle.class", loads, data, profile=PROFILE)
    else:
        got = loads(data, profile=PROFILE)
        assert (type(got), got.errno) == (type(error), number)


@pytest.fixture
def shop(monkeypatch):
    module = types.ModuleType("safeser_shop")

    class Sold(Exception):
        def __init__(self, message, code):
            super().__init__(message, code)
            self.code = code

    class Other(Exception):
        def __new__(cls, *_):
            return ValueError("other")

    class Box:
        pass

    for made in (Sold, Other, Box):
        made.__module__, made.__qualname__ = "safeser_shop", made.__name__
        setattr(module, made.__name__, made)
    monkeypatch.setitem(sys.modules, "safeser_shop", module)
    # Classes are looked up once for the process; these live for one test.
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
        tblib.install(error)
    data = pickle.dumps(error)
    got = loads(data, profile=allowing("Sold"))
    assert (type(got), got.args, got.code) == (shop.Sold, ("m", 3), 3)
    with pytest.raises(PolicyDenied):
        loads(data, profile=PROFILE)


@pytest.mark.parametrize("made", [
    rebuilt("safeser_shop:Box", "args", ()),  # no exception
    rebuilt("safeser_shop:Other", "args", ()),  # which makes something else
    call(TBLIB, name("safeser_shop:Other"), (), None, None),
    rebuilt("safeser_shop:Sold", "args", (), "__class__", None),
])  # fmt: skip
def test_bypass_forged_exceptions_of_ones_own_are_refused(shop, made):
    with pytest.raises(SafeserError):
        loads(pickled(made), profile=allowing("Sold", "Other", "Box"))


def test_nobody_opens_the_file_that_a_pickled_syntax_error_names():
    place = (__file__, 1, 2, "x", 1, 3)
    got = loads(pickle.dumps(SyntaxError("bad", place)), profile=PROFILE)
    assert got.args == ("bad", ("<test_exceptions.py>", *place[1:]))
    assert linecache.getlines(got.filename) == []
    assert loads(pickle.dumps(SyntaxError("bad", place, 5)), profile=PROFILE).args[2:] == (5,)


def test_bypass_a_long_document_that_many_errors_share_is_charged():
    text = value("\n" * 400_000) + b"q\x00"
    error = call("json.decoder:JSONDecodeError", "m", b"h\x00", 1)
    few = Limits(max_memory=12_000 << 7, max_sharing=99)
    refused(
        "pickle.max-memory", loads, pickled((text, *[error] * 1000)), profile=PROFILE, limits=few
    )
