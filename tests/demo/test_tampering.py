"""Every forgery is found, and one that is not found ends the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo.errors import StepFailed
from examples.demo.refusals import Refusal, refusals, wait_for_refusals
from examples.demo.tampering import FORGERIES, Forgery, largest_log, try_forgery
from safeser.audit import AuditKey, AuditLog, verify

POLICY = ("demo", 1, "0" * 64)
ANYBODY = frozenset({"bob", "unknown", "alice"})


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "audit.key"
    AuditKey.new().save(path)
    return path


@pytest.fixture
def folder(tmp_path: Path, key: Path) -> Path:
    folder = tmp_path / "audit"
    for principal, records in (("worker", 5), ("scheduler", 40)):
        with AuditLog.open(folder, key=key, principal=principal, policy=POLICY) as log:
            for number in range(records):
                log.record({"sender": "bob", "recipient": principal, "rule": "r",
                            "permitted": number % 2 == 0})  # fmt: skip
            log.count("unknown", principal, "handshake", "authentication", False)
            log.count("alice", principal, "identity", "permit", True)
    return folder


@pytest.mark.parametrize(
    ("forgery", "says"),
    list(
        zip(
            FORGERIES,
            ["changed record", "broken chain", "missing tail", "missing file"],
            strict=True,
        )
    ),
    ids=lambda value: value.what if isinstance(value, Forgery) else None,
)
def test_each_forgery_is_found_and_its_place_named(folder, key, tmp_path, forgery, says) -> None:
    log = largest_log(folder)
    assert log.name.startswith("scheduler-")
    place = try_forgery(forgery, log, key=key, scratch=tmp_path)
    assert says in place
    assert verify(folder, key=key).ok, "the log itself was changed"
    assert not (tmp_path / forgery.what.replace(" ", "-")).exists()


def test_a_forgery_that_is_not_found_ends_the_demo(folder, key, tmp_path) -> None:
    nothing = Forgery("nothing", lambda log: None)
    with pytest.raises(StepFailed, match="nothing in the audit log was not detected"):
        try_forgery(nothing, largest_log(folder), key=key, scratch=tmp_path)


def test_naming_another_file_ends_the_demo(folder, key, tmp_path) -> None:
    def change_another(log: Path) -> None:
        next(path for path in log.parent.glob("worker-*.log")).unlink()

    with pytest.raises(StepFailed, match="was detected, but in another file"):
        try_forgery(Forgery("x", change_another), largest_log(folder), key=key, scratch=tmp_path)


def test_refusals_are_read_from_events_and_counts(folder) -> None:
    found = refusals(folder, since=0, senders=ANYBODY)
    assert set(found) == {
        Refusal("bob", "scheduler", "r"),
        Refusal("bob", "worker", "r"),
        Refusal("unknown", "scheduler", "authentication"),
        Refusal("unknown", "worker", "authentication"),
    }
    assert refusals(folder, since=0, senders=frozenset({"alice"})) == []
    assert refusals(folder, since=2**52, senders=ANYBODY) == []


def test_a_log_that_cannot_be_read_hides_no_other(folder) -> None:
    (folder / "broken.log").write_bytes(b"not a record\n")
    assert refusals(folder, since=0, senders=ANYBODY)


def test_waiting_for_a_refusal_ends(folder, monkeypatch) -> None:
    monkeypatch.setattr("examples.demo.refusals._WAIT", 0.05)
    checked: list[int] = []
    found = wait_for_refusals(folder, since=2**52, senders=ANYBODY, check=lambda: checked.append(1))
    assert found == []
    assert checked
