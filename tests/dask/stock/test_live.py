"""A guarded client of a cluster that runs no safeser, started by the commands that users type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from safeser.audit import AuditKey, read, verify

HERE = Path(__file__).parent

pytestmark = pytest.mark.cluster


def a_day(stock, log):
    """Return what one user said at the end of a day, and the folder of their log."""
    AuditKey.new().save(log / "audit.key")
    settings = {
        "DASK_SAFESER__AUDIT": str(log / "audit"),
        "DASK_SAFESER__AUDIT_KEY": str(log / "audit.key"),
    }
    return stock.user(HERE / "user.py", **settings), log, stock


@pytest.fixture(scope="module")
def day(stocks, tmp_path_factory):
    return a_day(stocks("tcp"), tmp_path_factory.mktemp("log"))


VALUES = {
    **{"number": 3, "array": [0, 1, 2], "text": "hello you", "nested": [[3, 1], [2, 1]]},
    **{"sum": [0, 2, 4, 6], "direct": [[0], [0, 1]], "scattered": [0, 1]},
    **{"collection": [4.0] * 4, "first": [1, 2], "ran": [0], "on scheduler": 0},
}


def test_values(day):
    assert day[0]["values"] == VALUES


def test_frames_and_groups(day):
    assert day[0]["frames"] == {
        **{"frame": "1.0", "grouped": "[('a', 4), ('b', 2)]", "several": "[(2, 1), 3]"},
        **{"direct": "(2, 1)", "scalar": "3", "objects": "[1, 'a']"},
        **{"sparse": "[[1.0, 0.0], [0.0, 1.0]]"},
    }


def test_coordination(day):
    assert day[0]["coordination"] == {
        **{"queue": {"a": [1]}, "variable": 5, "event": True, "lock": True, "topic": True},
        **{"progress": True, "cancelled": True, "metadata": {"x": 1}, "workers": 1},
    }


def test_errors_are_readable(day):
    said = day[0]["errors"]
    assert (said["class"], said["text"], said["trace"]) == ("ValueError", "bad 1", True)
    assert said["traceback"] is None
    assert said["zero"].startswith("ZeroDivisionError")
    assert said["run"].startswith("ValueError: bad 2")
    assert said["warned"] == [["careful", "RuntimeWarning"]]


def test_what_failed_is_retried_with_what_it_needs(day):
    assert day[0]["retried"] == ["ValueError: not yet", 23]


def test_what_only_a_pickle_could_carry_is_refused_and_the_client_goes_on(day):
    said = day[0]["refused"]
    assert "stock.unsent" in said["object"]
    assert "Thing" in said["object"]
    assert "stock.type" in said["complex"]
    assert "frozenset" in said["frozen"]
    assert "floor.unknown" in said["dataset"]
    assert "Thing" in said["dataset"]
    assert said["then"] == 42


def test_the_process_speaks_nothing_else(day):
    check_schemes(day[0]["schemes"])


def check_schemes(said):
    for way in ("other scheme", "safeser", "without a guard", "listen", "stock client"):
        assert "scheme.guarded" in said[way], (way, said[way])
    for way in ("ws", "inproc", "late"):
        assert "scheme.sealed" in said[way], (way, said[way])


def test_a_second_client_and_what_it_asks_for(day):
    assert day[0]["again"] == 2
    assert day[0]["asked"] == ["dask", "msgpack"]


def test_the_log_calls_them_unauthenticated(day):
    check_log(*day[1:])


def test_so_it_is_over_tls(stocks, tmp_path):
    said, log, stock = a_day(stocks("tls"), tmp_path)
    assert said["values"] == VALUES
    check_schemes(said["schemes"])
    check_log(log, stock)


def check_log(log, stock):
    key = AuditKey.load(log / "audit.key")
    assert verify(log / "audit", key=key).ok
    events = [each for each in read(log / "audit") if each.type == "event"]
    assert {each.text("event") for each in events} >= {"admit", "refuse"}
    left = [each for each in events if each.text("rule").startswith("scheme.")]
    assert {each.text("where") for each in left} >= {"safeser://", "tcp://", "tls://", "inproc://"}
    assert {(each.text("sender"), each.text("recipient")) for each in left} == {
        ("client", "unknown")
    }
    for each in events:
        if each in left:
            continue
        assert each.fields["authenticated"] is False
        assert (each.text("sender"), each.text("transport")) == ("unknown", stock.scheme)
        assert each.text("address").startswith(f"{stock.scheme}://127.0.0.1:")


def test_the_example_of_a_guarded_client(stocks):
    stock = stocks("tcp")
    example = Path(__file__).parents[3] / "examples" / "guarded_client.py"
    ended = subprocess.run(
        [sys.executable, str(example), stock.address],
        **{"capture_output": True, "text": True, "timeout": 100, "check": False},
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    said = ended.stdout.splitlines()
    assert said[0] == "array: [0, 1, 2, 3]"
    assert said[1].startswith("an error of the task: division by zero")
    assert said[2].startswith("not here: the cluster could send this value only as a pickle")
    assert [line.split(":")[0] for line in said[3:]] == ["  rule", "  fix"]
