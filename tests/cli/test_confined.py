"""``safeser confined`` starts nothing where nothing is demanded, or something is missing."""

from __future__ import annotations

import os

import dask
import pytest

from safeser.cli import confined as command
from safeser.confinement import launch
from safeser.identities import make_identities
from safeser.policy.ready import locate


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Keys of a worker, and a policy that confines it to two folders."""
    for name in [name for name in os.environ if name.startswith("DASK_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(launch, "require_kernel", lambda: None)
    make_identities(tmp_path / "keys", ("scheduler", "worker"))
    for name in ("own", "data", "scratch", "etc"):
        (tmp_path / name).mkdir(mode=0o700)
    for name in ("worker.key", "audit.key"):
        (tmp_path / "keys" / name).rename(tmp_path / "own" / name)
    (tmp_path / "keys" / "roster").rename(tmp_path / "etc" / "roster")
    folders = f"{{read: [{tmp_path}/data], write: [{tmp_path}/scratch], ports: [8786]}}"
    text = locate("dask-cluster").read_text()
    assert "  worker: {}\n" in text
    policy = tmp_path / "etc" / "policy.yaml"
    policy.write_text(text.replace("  worker: {}\n", f"  worker: {{confined: {folders}}}\n"))
    settings = {
        "identity": str(tmp_path / "own" / "worker.key"),
        "roster": str(tmp_path / "etc" / "roster"),
        "policy": str(policy),
        "audit": str(tmp_path / "log"),
    }
    with dask.config.set(safeser=settings):
        yield tmp_path


@pytest.fixture
def started(monkeypatch):
    """What would take the place of this process."""
    lines: list = []

    def execv(path, line):
        lines.append(line)
        raise SystemExit(0)

    monkeypatch.setattr(command.os, "execv", execv)
    monkeypatch.setattr(command.os, "chdir", lambda _: None)
    return lines


def test_the_rules_are_those_of_the_policy(site, safeser, started) -> None:
    assert safeser("confined", "--", "dask", "worker", "safeser://h:1", "--no-nanny").code == 0
    (line,) = started
    assert line[5:] == ["dask", "worker", "safeser://h:1", "--no-nanny"]
    rules = launch.Rules(**launch.json.loads(line[4]))
    own = {str(site / name) for name in ("data", "etc", "own", "log", "scratch")}
    assert own <= set(rules.read)
    assert set(rules.write) == {str(site / "log"), str(site / "scratch")}
    assert (rules.execute, rules.ports) == (False, [8786])
    assert (site / "log").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("settings", "path", "says"),
    [
        ({"safeser.policy": "dask-cluster"}, None, "confined.undemanded"),
        ({"safeser.identity": None}, None, "safeser.identity is not set"),
        ({"safeser.audit": None}, None, "safeser.audit is not set"),
        # Modules from a folder that depends on where it starts, or that the worker may write.
        ({}, ":/usr/lib", "confined.modules"),
        ({}, "modules", "confined.modules"),
        ({}, "/usr/lib:", "confined.modules"),
        ({}, "SITE/scratch/lib", "confined.modules"),
        ({}, "USER", "confined.modules"),
        ({}, "GONE", "confined.path"),
    ],
)
def test_what_is_not_started(site, safeser, started, monkeypatch, settings, path, says) -> None:
    if path == "USER":
        monkeypatch.setattr("site.ENABLE_USER_SITE", True)
        monkeypatch.setattr("site.getusersitepackages", lambda: str(site / "scratch" / ".local"))
    elif path == "GONE":
        (site / "data").rmdir()
    elif path:
        monkeypatch.setenv("PYTHONPATH", path.replace("SITE", str(site)))
    with dask.config.set(settings):
        ended = safeser("confined", "--", "dask", "worker")
    assert (ended.code, started) == (2, [])
    assert says in ended.err
    named = {"SITE/scratch/lib": f"{site}/scratch/lib", "GONE": f"{site}/data"}
    assert named.get(path, "") in ended.err


def test_doctor_shows_each_probe_of_its_own_process(site, safeser) -> None:
    ended = safeser("doctor", "--role=worker", "--json")
    found = {each["check"]: each for each in launch.json.loads(ended.out)}
    assert ended.code == 1
    for name in ("read", "write", "execute", "connect"):
        assert found[f"confined: {name}"]["state"] == "wrong"
        assert "safeser confined" in found[f"confined: {name}"]["fix"]
    assert found["confined: keys"]["state"] == "fine"


def test_show_says_what_a_process_may_do(site, safeser) -> None:
    ended = safeser("policy", "show", site / "etc" / "policy.yaml")
    assert "worker is confined, or does not start" in ended.out
    assert f"writes      {site}/scratch" in ended.out.replace("\n              ", " ")
    assert "starts      no program" in ended.out


def test_the_new_interpreter_starts_where_nothing_is_imported_from(
    site, safeser, started, monkeypatch
) -> None:
    went: list = []
    monkeypatch.setattr(command.os, "chdir", went.append)
    assert safeser("confined", "--", "dask", "worker").code == 0
    assert went == ["/"]
    assert launch.json.loads(started[0][4])["work"] == str(site / "scratch")
