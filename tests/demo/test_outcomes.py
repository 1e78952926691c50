"""Which outcomes of attacks are expected, and that any other ends the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo import steps
from examples.demo.attack_run import AttackRun, Outcome, _Side
from examples.demo.attacks import ATTACKS, Attack, markers
from examples.demo.errors import StepFailed
from examples.demo.folder import Folder
from examples.demo.refusals import Refusal
from examples.demo.screen import Row
from examples.demo.tampering import Forgery, largest_log, try_forgery
from safeser.audit import AuditKey, AuditLog

ATTACK = Attack("run", "run", "bob", "worker")
REFUSED = (Refusal("bob", "worker", "operation.not-granted"),)


def test_every_attack_has_a_name_and_markers_of_its_own(tmp_path) -> None:
    names = [path for attack in ATTACKS for path in markers(tmp_path, attack)]
    assert len(set(names)) == len(names) == sum(attack.forms for attack in ATTACKS)


def test_expected_is_ran_on_stock_and_refused_by_a_rule() -> None:
    outcome = Outcome(ATTACK, True, False, REFUSED)
    outcome.require_expected()
    assert outcome.row == Row("run", "bob", "worker", "ran", "operation.not-granted")


@pytest.mark.parametrize(
    ("stock", "safeser", "refusals", "reason"),
    [
        (True, True, REFUSED, "ran on safeser://"),
        (True, False, (), "no record says"),
        (False, False, REFUSED, "its refusal by safeser proves nothing"),
    ],
)
def test_anything_else_ends_the_demo(stock, safeser, refusals, reason) -> None:
    with pytest.raises(StepFailed, match=reason):
        Outcome(ATTACK, stock, safeser, refusals).require_expected()


def test_what_ran_late_ran(tmp_path) -> None:
    """A refusal of something else may be recorded before a busy scheduler opens the payload."""
    folder = Folder(tmp_path)
    attack_run = AttackRun(None, folder, "demo", None, None, None, None)  # type: ignore[arg-type]
    side = _Side("safeser", None, None, None, None)  # type: ignore[arg-type]
    refused = Outcome(ATTACK, stock=True, safeser=False, refusals=REFUSED)
    assert attack_run._checked_again(refused, side) == refused
    (marker, *_) = markers(folder.markers("safeser"), ATTACK)
    marker.parent.mkdir(parents=True)
    marker.touch()
    with pytest.raises(StepFailed, match="ran on safeser"):
        attack_run._checked_again(refused, side).require_expected()


def test_alices_own_code_must_run() -> None:
    attack_run = AttackRun(None, None, "demo", None, None, None, None)  # type: ignore[arg-type]
    attack_run._alice_ran.update(stock=True, safeser=True)
    attack_run.require_expected()
    assert attack_run.rows[-1].safeser == "ran: permitted"
    attack_run._alice_ran["safeser"] = False
    assert attack_run.rows[-1].safeser == "REFUSED"
    with pytest.raises(StepFailed, match="although the policy permits it"):
        attack_run.require_expected()


class _Alice:
    def tail(self) -> list[str]:
        return ["last words"]


def test_a_pickle_of_a_peer_in_alices_process_ends_the_demo() -> None:
    seen = {"peer": 1, "own": 3, "unwrapped": ["os:system"], "peer_globals": ["builtins:eval"]}
    with pytest.raises(StepFailed, match="loaded 1 pickles of other processes") as failed:
        steps._require_clean(seen, _Alice())  # type: ignore[arg-type]
    assert failed.value.lines == ("globals: builtins:eval, os:system", "last words")
    steps._require_clean({**seen, "peer": 0, "unwrapped": []}, _Alice())  # type: ignore[arg-type]


def test_a_log_that_does_not_verify_ends_the_demo(tmp_path, capsys) -> None:
    folder = Folder.make(tmp_path)
    folder.make_identities()
    with pytest.raises(StepFailed, match="does not verify"):
        steps._audit(steps.Screen(), folder)
    assert "The audit log" in capsys.readouterr().out


def _change_another(log: Path) -> None:
    next(path for path in log.parent.glob("worker-*.log")).unlink()


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (lambda log: None, "nothing in the audit log was not detected"),
        (_change_another, "was detected, but in another file"),
    ],
)
def test_a_forgery_that_is_not_found_in_its_file_ends_the_demo(tmp_path, forge, said) -> None:
    key, folder = tmp_path / "audit.key", tmp_path / "audit"
    AuditKey.new().save(key)
    for principal, records in (("worker", 5), ("scheduler", 40)):
        policy = ("demo", 1, "0" * 64)
        with AuditLog.open(folder, key=key, principal=principal, policy=policy) as log:
            for _ in range(records):
                log.record({"sender": "bob", "recipient": principal, "rule": "r",
                            "permitted": False})  # fmt: skip
    with pytest.raises(StepFailed, match=said):
        try_forgery(Forgery("nothing", forge), largest_log(folder), key=key, scratch=tmp_path)
