"""The nanny of a confined worker on a real cluster: it takes no code, beside one that does.

The nanny runs outside, with a key of its own. What it starts confines itself before anything of
Dask is imported: Python is started by way of a script that restricts it first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from safeser.confinement import PROBES
from tests.confinement.conftest import without_capabilities
from tests.confinement.site import Site
from tests.confinement.test_live import records
from tests.dask.live.rig import Log
from tests.dask.sealed.conftest import POLICY

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("landlock")]

#: Prints the rules by which ``safeser confined`` would start a worker.
RULES = """
import os, sys
def execv(path, line):
    print(line[4], flush=True)
    os._exit(0)
os.execv = execv
sys.argv = ["safeser", "confined", "--", "dask", "worker"]
from safeser.cli import main
main()
"""

#: Stands for Python where a process is spawned.
CONFINING = """#!{python} -P
import json, sys
from safeser.confinement import launch
rules = launch.Rules(**json.loads({rules!r}))
launch._start_witness()
launch.restrict(rules)
launch._enter_folder(rules.work)
code = sys.argv[sys.argv.index("-c") + 1]
sys.argv = ["-c", *sys.argv[sys.argv.index("-c") + 2:]]
exec(code)
"""

NANNY = """
import asyncio, json, multiprocessing, sys
address, python, options = json.loads(sys.argv[1])
if python:
    multiprocessing.set_executable(python)
from distributed import Nanny
async def main():
    async with Nanny(address, host="127.0.0.1", nthreads=1, memory_limit=0, **options) as nanny:
        await nanny.finished()
asyncio.run(main())
"""

USER = """
import json, os, re, sys, time
from distributed import NannyPlugin
from distributed.diagnostics.plugin import Environ
import safeser

class Notes(NannyPlugin):
    name = "notes"
    def __init__(self, folder):
        self.folder = folder
    def setup(self, nanny):
        os.makedirs(f"{self.folder}/{nanny.name}")

def variable(x):
    return os.environ.get("CHOSEN")

def rule(act):
    try:
        return act()
    except Exception as error:  # the scheduler hands on what a nanny says as text
        return re.findall(r"rule: ([a-z.-]+)", str(error))[0]

address, folder = json.loads(sys.argv[1])
with safeser.Client(address, timeout=60) as client:
    client.wait_for_workers(2, timeout=60)
    known = client.scheduler_info(n_workers=-1)["workers"]
    at = {info["name"]: where for where, info in known.items()}
    done = {"report": known[at["worker"]].get("safeser-confined")}
    for name, where in at.items():
        ran = rule(lambda: client.run(os.getpid, workers=[where], nanny=True))
        done[f"{name}, run"] = ran if isinstance(ran, str) else len(ran)
    done["plugin"] = rule(lambda: len(client.register_plugin(Notes(folder))))
    done["environment"] = rule(lambda: len(client.register_plugin(Environ({"CHOSEN": "yes"}))))
    done["notes"] = sorted(os.listdir(folder))
    before, known = at, {}
    # A nanny that takes variables of the environment starts its worker anew.
    while len(known) < 2 or before["free"] in known:
        time.sleep(0.1)
        known = client.scheduler_info(n_workers=-1)["workers"]
    for where, info in known.items():
        asked = client.submit(variable, 0, workers=[where], pure=False)
        done[f"{info['name']}, environment"] = asked.result(60)
    done["same worker"] = before["worker"] in known
print(json.dumps(done))
"""


class Nannies(Site):
    """Two nannies of one principal: the worker of the first is confined, that of the other free."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ("scheduler", "worker", "nanny", "free", "alice", "bob"), ports=3)
        self.write_policy(
            POLICY.replace("recipient: worker\n", "recipient: [worker, free]\n")
            .replace("sender: worker\n", "sender: [worker, free]\n")
            .replace("sender: [worker, nanny]", "sender: [worker, free, nanny]")
            .replace(
                "  worker: {}\n",
                "  free: {}\n  worker: {confined: "
                f"{{write: [{self.scratch}], ports: {self.ports}}}}}\n",
            )
        )

    def nanny_environment(self, worker: str) -> dict[str, str]:
        own = self.environment(worker)
        nanny = self.environment("nanny")
        return nanny | {
            "DASK_SAFESER__NANNY__IDENTITY": nanny["DASK_SAFESER__IDENTITY"],
            "DASK_SAFESER__WORKER__IDENTITY": own["DASK_SAFESER__IDENTITY"],
            "DASK_SAFESER__WORKER__AUDIT": own["DASK_SAFESER__AUDIT"],
        }

    def python(self) -> str:
        """Return the path of a Python that confines itself as the policy demands of the worker."""
        environment = self.environment("worker")
        ended = self.call(sys.executable, "-c", RULES, environment=environment)
        assert ended.code == 0, ended.err
        path = self.path / "python"
        path.write_text(CONFINING.format(python=sys.executable, rules=ended.out.strip()))
        path.chmod(0o755)
        return str(path)

    def nanny(self, name: str, python: str | None, **options: object) -> None:
        told = json.dumps([self.address, python, {"name": name, **options}])
        command = [*without_capabilities(), sys.executable, "-c", NANNY, told]
        self.start(f"nanny-{name}", *command, environment=self.nanny_environment(name))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Nannies(tmp_path_factory.mktemp("nannies"))
    try:
        made.start_scheduler()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def done(site):
    (site.path / "notes").mkdir()
    site.nanny("free", None, local_directory=str(site.path / "free-scratch"))
    site.nanny(
        "worker",
        site.python(),
        local_directory=str(site.scratch),
        worker_port=site.ports[1],
        dashboard_address=f"127.0.0.1:{site.ports[2]}",
    )
    asked = json.dumps([site.address, str(site.path / "notes")])
    ended = site.run("alice", USER, asked, timeout=200)
    assert ended.code == 0, f"{ended.out}\n{ended.err}\n{site.logs()}"
    return ended.answer


def test_its_worker_has_proven_that_it_is_confined(done, site):
    assert done["report"]["probes"] == list(PROBES)
    assert all(each["permitted"] for each in records(site.path / "log-worker"))


def test_it_runs_no_function(done):
    assert done["worker, run"] == "nanny.confined"
    assert done["free, run"] == 1  # the control


def test_it_takes_no_plugin_and_no_environment(done):
    assert (done["plugin"], done["environment"]) == ("nanny.confined", "nanny.confined")
    assert done["notes"] == ["free"]  # the control
    assert (done["free, environment"], done["worker, environment"]) == ("yes", None)
    assert done["same worker"]


def test_each_refusal_is_recorded(done, site):
    assert [each["rule"] for each in Log(site.path / "log-nanny").refusals()] == [
        "nanny.confined"
    ] * 3
