"""Which files a confined worker has, what it reports, and whom a scheduler takes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from safeser.confinement import PROBES, Outcome, Unconfined
from safeser.dask import roles
from safeser.dask.settings import Settings
from safeser.dask.worker.confinement import REPORT, demand_for, own_files, prove, require_report
from safeser.errors import ConfigError, PolicyDenied
from safeser.policy import Policy
from tests.refusal import refusal

TEXT = """safeser: 1
name: test
revision: 1
principals: {scheduler: {}, free: {}, worker: {confined: {read: [/data]}}}
contexts:
- name: in
  sender: [worker, free]
  recipient: scheduler
  operations: {grant: [basic, cluster]}
"""
POLICY = Policy.parse(TEXT)
DIGEST = POLICY.principals["worker"].confined.digest


def test_a_report_of_this_very_demand_is_taken() -> None:
    require_report(POLICY, "worker", {REPORT: {"demand": DIGEST, "probes": list(PROBES)}})
    require_report(POLICY, "worker", {REPORT: {"demand": DIGEST, "probes": (*PROBES, "more")}})


@pytest.mark.parametrize(
    "extra",
    [
        *(None, {}, [], {REPORT: None}, {REPORT: "proven"}, {"demand": 1}),
        *(
            {REPORT: said}
            for said in (
                {},
                {"demand": "0" * 64, "probes": list(PROBES)},
                {"demand": DIGEST},
                {"demand": DIGEST, "probes": None},
                {"demand": DIGEST, "probes": " ".join(PROBES)},
                {"demand": DIGEST, "probes": [each for each in PROBES if each != "read"]},
                {"demand": DIGEST, "probes": [{}]},
                {"demand": [DIGEST], "probes": list(PROBES)},
            )
        ),
    ],
)
def test_no_report_and_one_of_anything_else_is_refused(extra) -> None:
    with refusal(PolicyDenied, "worker.confined"):
        require_report(POLICY, "worker", extra)


def test_workers_of_other_principals_report_nothing() -> None:
    for name in ("free", "scheduler", "unlisted"):
        assert demand_for(POLICY, name) is None
        require_report(POLICY, name, None)
    made = channel("free")
    assert prove(made, SETTINGS, None) is None
    assert made.audit.events == []


# --- before a worker listens ----------------------------------------------------------------------


def channel(principal: str):
    events: list = []
    return SimpleNamespace(
        policy=POLICY,
        identity=SimpleNamespace(principal=principal),
        audit=SimpleNamespace(record=events.append, events=events),
    )


SETTINGS = Settings(identity="/k/own/worker.key", audit="/k/log", policy="/k/etc/p.yaml")


def test_a_worker_records_what_it_proved_and_reports_it(monkeypatch) -> None:
    monkeypatch.setattr(
        "safeser.confinement.probe", lambda *_: [Outcome("read", "refused", "could not")]
    )
    made = channel("worker")
    assert prove(made, SETTINGS, None) == {"demand": DIGEST, "probes": list(PROBES)}
    (event,) = made.audit.events
    assert (event["event"], event["permitted"], event["rule"]) == (
        "confined", True, "confined.proven",
    )  # fmt: skip
    assert event["probes"] == ["read refused: could not"]


def test_a_worker_that_its_policy_confines_has_no_nanny() -> None:
    """Its nanny would unpickle what it says, outside of the sandbox."""
    nanny = "safeser://127.0.0.1:9"
    with refusal(ConfigError, "confined.nanny"):
        prove(channel("worker"), SETTINGS, nanny)
    assert prove(channel("free"), SETTINGS, nanny) is None


def test_a_worker_that_is_not_confined_records_it_and_does_not_start(monkeypatch, capsys) -> None:
    outcomes = [
        Outcome("read", "succeeded", "could read /etc", "Bind less."),
        Outcome("write", "refused", "could not"),
        Outcome("trace", "unproven", "nothing was there", "Leave a process."),
    ]
    monkeypatch.setattr("safeser.confinement.probe", lambda *_: outcomes)
    made = channel("worker")
    with pytest.raises(Unconfined) as caught:
        prove(made, SETTINGS, None)
    (event,) = made.audit.events
    assert (event["permitted"], event["rule"]) == (False, "confined.read")
    codes: list = []
    monkeypatch.setattr(roles.os, "_exit", codes.append)
    monkeypatch.setattr(roles, "close_channels_in", lambda _: None)
    roles.stop_command(caught.value)
    assert codes == [2]
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("could read /etc [confined.read] Bind less.")
    assert second.endswith("nothing was there [confined.trace] Leave a process.")


def test_own_files_are_those_of_the_settings(tmp_path) -> None:
    own = own_files(SETTINGS, POLICY)
    assert list(map(str, own.files)) == ["/k/own/worker.key", "/k/own/audit.key", "/k/etc/p.yaml"]
    assert str(own.audit) == "/k/log"
    assert own.principals == ("scheduler", "free", "worker")
    (tmp_path / "roster").write_text("")
    beside = own_files(Settings(identity=str(tmp_path / "w.key"), audit="/k/log"), POLICY)
    assert tmp_path / "roster" in beside.files
    told = own_files(
        Settings(**{**SETTINGS.absolute(), "roster": "/r/r", "audit_key": "/a/k"}), POLICY
    )
    assert {"/r/r", "/a/k"} <= set(map(str, told.files))
    with pytest.raises(ConfigError, match="no audit log"):
        own_files(Settings(identity="/k/own/worker.key"), POLICY)
