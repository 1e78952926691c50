"""What distributed logs of its peers' words steers no terminal, whoever prints it."""

from __future__ import annotations

import io
import logging

import pytest

from safeser.dask.log_text import escape_logs, shorten_refusals
from safeser.errors import PolicyDenied

STEERING = "\x1b]0;mine\x07\r\x9b2J\u202e"


@pytest.fixture
def lines():
    escape_logs()
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logger = logging.getLogger("distributed.test-logged")
    logger.addHandler(handler)
    logger.propagate = False
    yield logger, said
    logger.removeHandler(handler)


@pytest.fixture(autouse=True)
def as_it_was():
    make = logging.getLogRecordFactory()
    yield
    logging.setLogRecordFactory(make)


def test_no_key_name_or_error_steers_a_terminal(lines):
    logger, said = lines
    logger.warning("Scheduler cancels key %s.  Force=%s", STEERING, True)
    logger.warning(f"Remove worker name: {STEERING}")
    logger.warning("named %(name)s", {"name": STEERING})
    error = ValueError(STEERING)
    logger.error(error, exc_info=error)
    printed = said.getvalue()
    assert printed.count("mine") == 5
    assert all(c.isprintable() or c in "\n\t" for c in printed)


@pytest.mark.parametrize("name", ["asyncio", "tornado.application", "safeser.dask", "distributed"])
def test_whoever_tells_of_an_error_tells_it_escaped(name):
    escape_logs()
    record = logging.getLogger(name).makeRecord(name, 40, "f", 1, "%s", (STEERING,), None)
    assert record.getMessage().isprintable()


# --- refusals -------------------------------------------------------------------------------------


@pytest.fixture
def handlers():
    """Return the logger on which Dask reports the failure of a handler, and what it said."""
    shorten_refusals()
    shorten_refusals()  # changes nothing
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    logger = logging.getLogger("distributed.core")
    logger.addHandler(handler)
    yield logger, said
    logger.removeHandler(handler)


def failing(error):
    raise error


def raised(error, report):
    try:
        failing(error)
    except Exception as caught:
        report(caught)


def test_a_refusal_that_a_handler_raises_is_one_text_without_a_traceback(handlers):
    logger, said = handlers
    refusal = PolicyDenied("no", rule="a.b", fix="Do that.")
    raised(refusal, lambda _: logger.exception("Exception while handling op %s", "x"))
    expected = f"Exception while handling op x: {refusal}\n"
    assert said.getvalue() == expected
    # As by Dask's log_errors, beside the handler.
    raised(refusal, logger.exception)
    raised(refusal, lambda error: logger.error(f"broadcast to w failed: {error}"))
    assert said.getvalue() == expected


def test_other_records_stay_as_they_are(handlers):
    logger, said = handlers
    raised(PolicyDenied("no"), lambda _: logger.error("something else"))
    raised(ValueError("its own"), lambda _: logger.exception("Exception while handling op x"))
    printed = said.getvalue()
    assert printed.startswith("something else\nException while handling op x\nTraceback")
    assert printed.endswith("ValueError: its own\n")


def test_what_a_user_s_function_raised_keeps_its_lines(handlers):
    logger, said = handlers
    raised(PolicyDenied("no"), lambda _: logger.warning("Run Failed", exc_info=True))
    assert "in failing" in said.getvalue()


def test_at_debug_the_traceback_stays(handlers, caplog):
    logger, said = handlers
    with caplog.at_level(logging.DEBUG, logger="safeser"):
        raised(PolicyDenied("no"), lambda _: logger.exception("Exception while handling op x"))
    assert "Traceback" in said.getvalue()
