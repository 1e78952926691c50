"""``safeser policy test``: cases are strict, say what failed, and count the contexts they test."""

from __future__ import annotations

from pathlib import Path

import pytest

from safeser.errors import ConfigError
from safeser.policy import ready_policies
from safeser.policy.questions.cases import CaseReport, run_cases

ROOT = Path(__file__).parents[3]
READY = sorted((ROOT / "policies" / "tests").glob("*.yaml"))
HEAD = "safeser: 1\npolicy: strict\ncases:\n"
GOOD = "  - {sender: client, recipient: scheduler, family: dask, expect: permit}\n"


def test_each_ready_policy_has_tests() -> None:
    assert [path.stem for path in READY] == list(ready_policies())


@pytest.mark.parametrize("path", READY, ids=lambda path: path.stem)
def test_the_tests_of_ready_policies_pass_and_reach_every_context(path: Path) -> None:
    tested = run_cases(path)
    assert tested.policy.name == path.stem
    assert [(each.line, each.problem) for each in tested.failed] == []
    assert tested.untested == ()
    assert tested.coverage == 100


def ran(tmp_path: Path, cases: str, head: str = HEAD) -> CaseReport:
    path = tmp_path / "cases.yaml"
    path.write_text(head + cases)
    return run_cases(path)


def test_a_case_that_fails_says_what_was_found(tmp_path: Path) -> None:
    tested = ran(
        tmp_path,
        GOOD
        + GOOD.replace("dask", "cloudpickle").replace("permit", "refuse")
        + "  - sender: client\n    recipient: scheduler\n    kind: admin\n    family: pickle\n"
        "    expect: refuse\n    rule: context.family\n"
        + GOOD.replace("permit}", "permit, context: results}"),
    )
    problems = [(each.line, each.problem.partition(":")[0]) for each in tested.failed]
    assert problems == [
        (5, "expected refuse, found permit [permit]"),
        (6, "expected rule context.family, found floor.admin"),
        (12, "expected context results, found client-submits-code"),
    ]
    assert "client-submits-code" not in tested.untested
    assert 0 < tested.coverage < 100
    assert str(tested.outcomes[0].case) == "client -> scheduler data as dask"


def test_authors_sides_hosts_and_operations_are_asked_about(tmp_path: Path) -> None:
    tested = ran(
        tmp_path,
        "  - {sender: scheduler, recipient: worker, kind: task, operation: compute-task,"
        " family: pickle, author: client, side: write, transport: safeser, same_host: true,"
        " expect: permit, rule: permit}\n"
        "  - {sender: scheduler, recipient: worker, family: pickle, author: any, expect: refuse}\n",
    )
    assert tested.failed == ()
    assert str(tested.outcomes[0].case).endswith("task compute-task as pickle of client")


def test_a_policy_is_named_by_its_path_from_the_file(tmp_path: Path) -> None:
    own = tmp_path / "mine.yaml"
    own.write_text((ROOT / "policies" / "strict.yaml").read_text("utf-8"))
    own.chmod(0o600)
    assert ran(tmp_path, GOOD, HEAD.replace("strict", "mine.yaml")).failed == ()


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (HEAD + GOOD.replace("client", "cleint"), "line 4, column 14", "Did you mean 'client'?"),
        (HEAD + GOOD.replace("dask", "dusk"), "line 4, column 52", "Did you mean 'dask'?"),
        (HEAD + GOOD.replace("permit", "allow"), "line 4", "there is no outcome 'allow'"),
        (HEAD + GOOD.replace("sender", "sendr"), "line 4, column 6", "Did you mean 'sender'?"),
        (HEAD + GOOD.replace("permit}", "permit, rule: floor.admin}"), "line 4", "by rule permit"),
        (HEAD + GOOD.replace("permit}", "permit, context: x}"), "line 4", "no 'x'"),
        (HEAD + GOOD.replace("permit}", "permit, operation: pingg}"), "line 4", "'ping'"),
        (HEAD + GOOD.replace("permit}", "permit, author: zoe}"), "line 4", "no 'zoe'"),
        (HEAD + GOOD.replace("permit}", "permit, kind: big}"), "line 4", "there is no kind 'big'"),
        (HEAD + GOOD.replace("sender: client, ", ""), "line 4", "a case needs 'sender'"),
        (HEAD + "  - {sender: &a client}\n", "line 4", "anchors and aliases"),
        (HEAD + GOOD + "more: 1\n", "line 5", "a test of a policy has no key 'more'"),
        (HEAD.replace("cases:", "cases: []"), "line 3", "must have at least 1 entries"),
        ("safeser: 2\npolicy: strict\ncases: []\n", "line 1", "reads policies of version 1"),
        ("[]", "line 1", "a test of a policy is a mapping"),
        (HEAD.replace("strict", "nothing") + GOOD, "", "there is no ready policy 'nothing'"),
    ],
)
def test_what_means_nothing_does_not_run(
    tmp_path: Path, text: str, place: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        ran(tmp_path, text, "")
    assert place in str(caught.value)
    assert message in str(caught.value)


def test_a_case_of_nobody_has_no_meaning(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        ran(tmp_path, GOOD.replace("client", "cleint"))
    assert caught.value.rule == "config.case"


def test_a_case_is_asked_on_its_day(tmp_path: Path) -> None:
    """Whatever day it is when the tests run."""
    policy = (
        "safeser: 1\nname: p\nrevision: 1\nprincipals: {a: {}, b: {}}\ncontexts:\n"
        "- {name: one, sender: a, recipient: b, until: '2026-06-30'}\n...\n"
    )
    (tmp_path / "p.yaml").write_text(policy, "utf-8")
    (tmp_path / "p.yaml").chmod(0o600)
    hop = "sender: a, recipient: b, kind: admin, family: msgpack"
    path = tmp_path / "cases.yaml"
    path.write_text(
        "safeser: 1\npolicy: ./p.yaml\ncases:\n"
        f"- {{{hop}, day: '2026-06-30', expect: permit}}\n"
        f"- {{{hop}, day: '2026-07-01', expect: refuse, rule: context.ended, context: one}}\n"
        f"- {{{hop}, day: '2026-07-01', expect: permit}}\n",
        "utf-8",
    )
    (failed,) = run_cases(path).failed
    assert (failed.line, str(failed.case)) == (6, "a -> b admin as msgpack on 2026-07-01")
