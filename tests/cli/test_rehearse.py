"""``safeser policy diff``, ``test``, ``replay`` and ``learn``: their output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from safeser.audit import AuditKey, AuditLog
from safeser.policy.ready import locate


@pytest.fixture
def looser(tmp_path: Path) -> Path:
    """Return a copy of policy strict whose results may have pickles."""
    path = tmp_path / "looser.yaml"
    text = locate("strict").read_text("utf-8")
    path.write_text(text.replace("max_depth: 100", "max_depth: 150"))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize(
    ("words", "code", "out"),
    [
        ("strict strict --fail-on=any", 0, "Both permit the same.\n"),
        ("strict LOOSER", 0, "+ limits.max_depth: 100 -> 150\nThis loosens the policy.\n"),
        ("strict LOOSER --fail-on loosening", 1, "+ limits"),
        ("LOOSER strict --fail-on loosening", 0, "- limits.max_depth: 150 -> 100\n"),
        ("LOOSER strict --fail-on any", 1, "- limits"),
        ("strict ./missing.yaml", 2, ""),
        ("strict strict --fail-on=never", 2, ""),
    ],
)
def test_diff(safeser, looser, words, code, out):
    ended = safeser("policy", "diff", *words.replace("LOOSER", str(looser)).split())
    assert ended.code == code
    assert ended.out.startswith(out)


def test_diff_for_programs_is_json(safeser, looser):
    ended = safeser("policy", "diff", "strict", looser, "--format=json")
    assert json.loads(ended.out)["settings"] == [
        {"effect": "loosens", "what": "limits.max_depth", "old": "100", "new": "150"}
    ]


def test_test_prints_coverage_and_fails_under_it(safeser, tmp_path):
    cases = tmp_path / "cases.yaml"
    cases.write_text(
        "safeser: 1\npolicy: stock-cluster\ncases:\n"
        "  - {sender: unknown, recipient: client, transport: tcp, family: dask, expect: permit}\n"
    )
    ended = safeser("policy", "test", cases, "--fail-under=100")
    assert ended.code == 0
    assert ended.out == (
        f"{cases}: 1 of 1 cases as expected; 100 % of the contexts of stock-cluster are tested\n"
    )
    cases.write_text(cases.read_text().replace("permit", "refuse").replace("tcp", "library"))
    ended = safeser("policy", "test", cases, "--fail-under=100")
    assert ended.code == 1
    assert "1 of 1 cases as expected; 0 % of" in ended.out
    assert "untested: from-a-stock-cluster" in ended.out
    assert safeser("policy", "test", cases).code == 0
    cases.write_text(cases.read_text().replace("refuse", "permit"))
    ended = safeser("policy", "test", cases)
    assert ended.code == 1
    assert ended.out.startswith(f"{cases}, line 4: unknown -> client data as dask: expected permit")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return the folder of a log of what policy dask-cluster permitted."""
    folder = tmp_path / "audit"
    with AuditLog.open(folder, key=AuditKey.new(), principal="scheduler") as made:
        for name, kind, operation, family in (
            ("alice", "data", "gather", "msgpack"),
            ("carol", "data", "scatter", "dask"),
        ):
            made.record(
                {
                    **{"event": "admit", "sender": name, "recipient": "scheduler"},
                    **{"kind": kind, "operation": operation, "family": family},
                    **{"author": name, "where": "data", "rule": "permit", "permitted": True},
                }
            )
        made.count("dashboard", "scheduler", "identity", "permit", True, times=3)
        made.count("eve\x1b[31m", "scheduler", "identity", "permit", True)
    return folder


def test_replay_fails_where_something_would_have_been_refused(safeser, log):
    ended = safeser("policy", "replay", "dask-cluster", log)
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "dask-cluster revision 1 refuses 0 of 5 messages that were permitted",
        "1 messages are left out: no policy decides about them.",
        "Not replayed: limits, key conflicts, names within pickles, which task of"
        " another a request is about.",
    ]
    ended = safeser("policy", "replay", "strict", log)
    assert ended.code == 1
    assert "strict revision 1 refuses 5 of 5 messages that were permitted" in ended.out
    assert max(map(len, ended.out.split("\n- ")[0].splitlines())) <= 80
    ended = safeser("policy", "replay", "strict", log, "--format", "json")
    assert len(json.loads(ended.out)["refused"]) == 3


def test_learn_prints_a_policy_that_replays_without_a_refusal(safeser, log, tmp_path):
    ended = safeser("policy", "learn", log, "--like", "dask-cluster")
    assert ended.code == 0
    assert "\x1b" not in ended.out
    path = tmp_path / "learned.yaml"
    path.write_text(ended.out)
    path.chmod(0o600)
    assert safeser("policy", "check", path).code == 0
    assert safeser("policy", "replay", path, log).code == 0
    assert safeser("policy", "learn", log).code == 0


def test_logs_that_are_not_there_could_not_be_read(safeser, tmp_path):
    assert safeser("policy", "replay", "strict", tmp_path / "none").code == 2
    assert safeser("policy", "learn", tmp_path / "none").code == 2
