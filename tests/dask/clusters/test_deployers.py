"""What starts clusters for people: LocalCluster, SpecCluster, SLURM jobs, and adaptive scaling."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import dask
import pytest

from safeser.dask.security import Security
from safeser.errors import ConfigError
from safeser.identity import Roster
from tests.processes import Folder, base_environment

ROLES = ("scheduler", "worker", "nanny", "client")

PROGRAM = """
import json, os, sys, time, traceback
import safeser
from distributed import LocalCluster, Nanny, Scheduler, SpecCluster, Worker

ROLES = ("scheduler", "worker", "nanny", "client")
ROLES = {name: {"identity": f"keys/{name}.key"} for name in ROLES}
SHARED = {"policy": "default", "audit": "audit"}

def made(roles=ROLES):
    return safeser.Security(**SHARED, roles=roles)

def local(security, **options):
    return LocalCluster(
        n_workers=1, threads_per_worker=1, protocol="safeser://", security=security,
        dashboard_address=None, **options)

def spec(security, cls=Nanny):
    worker = {"cls": cls, "options": {"nthreads": 1, "security": security}}
    options = {"protocol": "safeser", "security": security, "dashboard": False}
    return SpecCluster(
        scheduler={"cls": Scheduler, "options": options}, workers={0: worker}, worker=worker,
        security=security, silence_logs="error")

def until(what, probe, patience=60):
    deadline = time.monotonic() + patience
    while not probe():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)

def worked(cluster):
    assert cluster.scheduler_address.startswith("safeser://")
    with safeser.Client(cluster) as client:
        client.wait_for_workers(1, timeout=60)
        assert client.gather(client.map(lambda x: x + 1, range(20))) == list(range(1, 21))
        links = client.safeser.audit.refusals
    return links

def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.02)

def scaled(cluster, at_least=1):
    with safeser.Client(cluster) as client:
        cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        adaptive = cluster.adapt(
            minimum=at_least, maximum=2, interval="100ms", wait_count=2, target_duration="500ms")
        until("one of two is stopped", lambda: len(client.scheduler_info()["workers"]) == at_least)
        # More than one worker can have done by then, as far as the cluster can know.
        path = os.path.abspath(f"both-are-there-{cluster.name}")
        futures = client.map(lambda x: wait_for(path) or x, range(40))
        until("another is started", lambda: len(client.scheduler_info()["workers"]) == 2)
        adaptive.stop()  # and none of the two
        open(path, "w").close()
        assert client.gather(futures) == list(range(40))
"""


@pytest.fixture
def place(tmp_path):
    made = Folder(tmp_path, "default", ROLES)
    yield made
    made.stop()


def run(place, program, **environment):
    """Run *program* below PROGRAM as a script, since workers of LocalCluster import it."""
    path = place.path / "program.py"
    body = "".join(f"    {line}\n" for line in program.strip().splitlines())
    path.write_text(f"{PROGRAM}\nif __name__ == '__main__':\n{body}")
    given = base_environment() | environment
    ended = place.call(sys.executable, str(path), environment=given, timeout=150)
    assert ended.code == 0, f"{ended.out}\n{ended.err}"
    return ended


# --- clusters of Dask's own ----------------------------------------------------------------------

#: One program, since importing takes longer than most of it.
EACH = """
def says():
    with LocalCluster(n_workers=0, dashboard_address=None) as cluster:
        try:
            safeser.Client(cluster)
        except safeser.SafeserError as error:
            return str(error)

def used(cluster, *, scales):
    with cluster:
        worked(cluster)
        if scales:
            scaled(cluster)
    return "worked"

said = {}
for name, call in {
    "on another scheme": says,
    "local": lambda: used(local(made()), scales=True),
    "local, of threads": lambda: used(local(made(), processes=False), scales=False),
    "spec": lambda: used(spec(made()), scales=False),
    "spec, of workers": lambda: used(spec(made(), Worker), scales=True),
}.items():
    try:
        said[name] = call()
    except Exception as error:
        said[name] = "".join(traceback.format_exception(error))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def each(tmp_path_factory):
    place = Folder(tmp_path_factory.mktemp("each"), "default", ROLES)
    return run(place, EACH).answer


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["local", "local, of threads", "spec", "spec, of workers"])
def test_a_cluster_of_dasks_own_works_and_scales(each, name):
    assert each[name] == "worked"


@pytest.mark.cluster
def test_a_cluster_on_another_scheme_is_said_to_be_one(each):
    said = each["on another scheme"]
    assert "does not run on safeser:// [config.scheme] Start it with" in said


@pytest.mark.cluster
def test_a_stock_local_cluster_takes_its_settings_from_the_environment(place):
    """No security= at all: each role has its section in Dask's configuration."""
    environment = {
        f"DASK_SAFESER__{role.upper()}__IDENTITY": str(place.keys / f"{role}.key") for role in ROLES
    }
    environment["DASK_SAFESER__AUDIT"] = str(place.audit)
    run(place, "with local(None) as cluster:\n    worked(cluster)", **environment)


# --- errors that Dask wraps ----------------------------------------------------------------------

#: What is wrong with the settings of one role, and what the user must be told.
WRONG = {
    "no key": ({"identity": "keys/none.key"}, "keys/none.key does not exist [config.identity]"),
    "open key": ({"identity": "open/KEY"}, "can be used by others (mode 0644) [config.identity]"),
    "no log key": ({"audit_key": "keys/none.key"}, "[config.audit-key]"),
    "no policy": ({"policy": "defalt"}, "Did you mean 'default'"),
    "not listed": ({"roster": "empty"}, "is not listed for that principal [config.identity]"),
}


#: Cases that one program tries after each other: with which roles changed, started by what. Each
#: fault is one role's.
_WRONG_ROLES = dict(zip(WRONG, ("scheduler", "worker", "nanny", "worker", "nanny"), strict=True))
CASES = {
    **{
        wrong: (role, WRONG[wrong][0], "local(made(roles))") for wrong, role in _WRONG_ROLES.items()
    },
    "spec, worker": ("worker", WRONG["no log key"][0], "spec(made(roles), Worker)"),
    # Its key is listed on its own side only.
    **{
        f"another {role}": (
            role,
            {"identity": "other/keys/KEY", "roster": "both", "audit_key": "keys/audit.key"},
            "local(made(roles))",
        )
        for role in ("worker", "nanny")
    },
    "client": ("client", WRONG["open key"][0], "local(made(roles))"),
}

TRYING = """
def roles_of(role, changes):
    changed = json.loads(json.dumps(changes).replace("KEY", f"{role}.key"))
    return {**ROLES, role: {**ROLES[role], **changed}}

found = {}
for name, (role, changes, start) in json.load(open("cases.json")).items():
    print("CASE", name, file=sys.stderr, flush=True)
    try:
        with eval(start, {**globals(), "roles": roles_of(role, changes)}) as cluster:
            worked(cluster)
    except Exception as error:
        found[name] = "".join(traceback.format_exception(error))
    else:
        found[name] = "it worked"
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Return the traceback that a user sees, by case."""
    place = Folder(tmp_path_factory.mktemp("wrong"), "default", ROLES)
    open_keys = place.path / "open"
    shutil.copytree(place.keys, open_keys)
    for each in open_keys.glob("*.key"):
        each.chmod(0o644)
    (place.path / "empty").write_text("end 0\n")
    other = Folder(place.path / "other", "default", ROLES)
    both = [Roster.load(each.keys / "roster").entries for each in (place, other)]
    Roster([*both[0], *both[1]]).save(place.path / "both")
    (place.path / "cases.json").write_text(json.dumps(CASES))
    return run(place, TRYING).answer


@pytest.mark.cluster
@pytest.mark.parametrize("wrong", WRONG)
def test_the_reason_is_in_the_traceback_of_a_local_cluster(shown, wrong):
    _, says = WRONG[wrong]
    text = shown[wrong]
    assert says in text
    assert "failed to start" in text.strip().splitlines()[-1]


@pytest.mark.cluster
def test_the_reason_is_in_the_traceback_of_a_spec_cluster(shown):
    assert WRONG["no log key"][1] in shown["spec, worker"]


@pytest.mark.cluster
@pytest.mark.parametrize("role", ["worker", "nanny"])
def test_a_refusal_by_the_scheduler_is_in_the_traceback(shown, role):
    said = shown[f"another {role}"]
    assert "did not accept each other" in said
    assert "rule: authentication" in said


@pytest.mark.cluster
def test_the_reason_is_in_the_traceback_of_a_client(shown):
    assert WRONG["open key"][1] in shown["client"].strip().splitlines()[-1]


# --- dask-jobqueue -------------------------------------------------------------------------------

SBATCH = """#!/bin/sh
# Runs the script here, without what the submitting process has in its environment.
cp "$1" "$STUB/job-$$.sh"
env -i PATH=/usr/bin:/bin HOME="$HOME" setsid sh "$STUB/job-$$.sh" \\
    > "$STUB/job-$$.out" 2>&1 < /dev/null &
echo "$!" >> "$STUB/jobs"
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
kill -TERM -- "-$1"
"""


@pytest.fixture
def slurm(place):
    """The commands of SLURM, which run jobs on this machine."""
    stub = place.path / "slurm"
    stub.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (stub / name).write_text(text)
        (stub / name).chmod(0o755)
    yield {"PATH": f"{stub}:{os.environ['PATH']}", "STUB": str(stub)}
    if (stub / "jobs").exists():
        for number in map(int, (stub / "jobs").read_text().split()):
            try:
                os.killpg(number, signal.SIGKILL)
            except ProcessLookupError:
                continue


@pytest.mark.cluster
def test_the_example_for_slurm_runs(place, slurm):
    example = Path(__file__).parents[3] / "examples" / "deploy" / "slurm" / "cluster.py"
    options = (f"--keys={place.keys}", f"--audit={place.audit}", "--policy=default")
    command = (sys.executable, str(example), *options, "--principal=client")
    ended = place.call(*command, environment=base_environment() | slurm, timeout=120)
    assert ended.code == 0, ended.err
    assert "sum: 42" in ended.out
    assert list(place.audit.glob("worker-*.log"))  # each worker recorded what it let through


def security(tmp_path, **shared):
    return Security(identity=str(tmp_path / "client.key"), audit="audit", **shared)


def test_only_tls_files_that_are_set_are_named(tmp_path):
    made = security(tmp_path)
    for role in ("client", "scheduler", "worker"):
        assert made.get_tls_config_for_role(role) == {}
    tls = Security(tls_ca_file="ca", tls_client_cert="cert", tls_client_key="key")
    assert tls.get_tls_config_for_role("worker") == {"ca_file": "ca"}
    assert tls.get_tls_config_for_role("client") == {"ca_file": "ca", "cert": "cert", "key": "key"}


def test_a_job_script_names_absolute_paths_and_no_key(tmp_path, monkeypatch):
    from dask_jobqueue import SLURMCluster

    monkeypatch.chdir(tmp_path)
    made = Security(
        policy="default",
        audit="my logs",
        expected_scheduler="scheduler",
        roles={"worker": {"identity": "keys/worker.key"}, "nanny": {"identity": "~/nanny.key"}},
    )
    shared = [
        ("POLICY", "default"),
        ("AUDIT", f"'{tmp_path}/my logs'"),
        ("EXPECTED_SCHEDULER", "scheduler"),
    ]
    keys = {"WORKER": f"{tmp_path}/keys/worker.key", "NANNY": str(Path.home() / "nanny.key")}
    assert made.exports() == [
        f"export DASK_SAFESER__{role}__{name}={value}"
        for role, key in keys.items()
        for name, value in (("IDENTITY", key), *shared)
    ]
    assert made.exports("worker") == made.exports()[:4]
    job = SLURMCluster.job_cls(
        "safeser://192.0.2.1:8786", cores=1, memory="1GB", protocol="safeser://", security=made,
        job_script_prologue=made.exports(),
    )  # fmt: skip
    script = job.job_script()
    assert "tls" not in script
    assert made.exports()[0] in script


def test_a_policy_of_ones_own_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    [line] = [
        each
        for each in security(tmp_path, policy="./mine.yaml").exports("worker")
        if "POLICY" in each
    ]
    assert line == f"export DASK_SAFESER__WORKER__POLICY={tmp_path}/mine.yaml"


@pytest.mark.parametrize(
    ("settings", "rule", "named"),
    [
        ({}, "config.identity", ["IDENTITY", "AUDIT"]),
        ({"audit": "audit"}, "config.identity", ["IDENTITY"]),
        ({"identity": "a.key"}, "config.audit", ["AUDIT"]),
    ],
)
def test_a_job_that_could_not_start_is_not_written(settings, rule, named):
    with dask.config.set(safeser={}), pytest.raises(ConfigError) as caught:
        Security(**settings).exports("worker")
    assert caught.value.rule == rule
    assert re.findall(r"DASK_SAFESER__(\w+)", caught.value.fix) == named


def test_a_role_that_does_not_exist(tmp_path):
    with pytest.raises(ConfigError, match="no role 'wrker'"):
        security(tmp_path).exports("wrker")
