"""The Kubernetes files run here: their mounts, ids, probes and commands."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from safeser.audit import verify
from safeser.identities import make_identities
from tests.needs import needs
from tests.pods import Network, Place, Pod, possible
from tests.processes import until

pytestmark = [pytest.mark.cluster, needs("the right to make namespaces", possible())]

SCHEDULER, WORKER, CLIENT = "192.0.2.1", "192.0.2.2", "192.0.2.3"
PROGRAM = """
import safeser
with safeser.Client("ADDRESS", deserializers=["dask", "msgpack"], timeout=60) as client:
    client.wait_for_workers(1, timeout=60)
    print(client.gather(client.map(abs, range(-5, 0))), list(client.scheduler_info()["workers"]))
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("deploy") / "keys"
    make_identities(folder, ("scheduler", "worker", "nanny", "carol"))
    return folder


@pytest.fixture(scope="module")
def files(keys) -> dict[str, bytes]:
    made = {path.name: path.read_bytes() for path in keys.iterdir()}
    policy = Path(__file__).parents[2] / "examples" / "deploy" / "policy.yaml"
    return {**made, "policy.yaml": policy.read_bytes()}


@pytest.fixture
def network(tmp_path):
    made = Network(tmp_path, (SCHEDULER, WORKER, CLIENT))
    yield made
    made.close()


def check_work(network, client):
    code, said = network.run(client)
    assert code == 0, network.logs()
    assert "[5, 4, 3, 2, 1]" in said
    assert f"safeser://{WORKER}:" in said, said
    for pod in network._running:
        assert "Traceback" not in network.log(pod), network.logs()


# --- Kubernetes ----------------------------------------------------------------------------------


class Cluster:
    """Pods of the manifests, as a kubelet makes them."""

    def __init__(self, manifests, files, path: Path) -> None:
        self.manifests = manifests
        self.files = files
        self.path = path

    def pod(self, name: str, address: str, **changes) -> Pod:
        spec = self.manifests[f"Deployment/safeser-{name}"]["spec"]["template"]["spec"]
        security = {**spec["securityContext"], **changes}
        [container] = spec["containers"]
        volumes = {each["name"]: each for each in spec["volumes"]}
        values = {"POD_IP": address}
        for each in container["env"]:
            if "value" in each:
                values[each["name"]] = each["value"]
        group = security.get("fsGroup", 0)
        return Pod(
            name,
            security["runAsUser"],
            security["runAsGroup"],
            [re.sub(r"\$\((\w+)\)", lambda m: values[m[1]], word) for word in container["command"]],
            values,
            [
                self._place(name, mount, volumes[mount["name"]], group, changes)
                for mount in container["volumeMounts"]
            ],
            before=[
                (
                    each["command"],
                    [
                        self._place(name, mount, volumes[mount["name"]], group, changes)
                        for mount in each["volumeMounts"]
                    ],
                )
                for each in spec["initContainers"]
            ],
            groups=[group] if group else [],
            folder=container["workingDir"],
            hosts={"safeser-scheduler": SCHEDULER},
            read_only=container["securityContext"]["readOnlyRootFilesystem"],
        )

    def _place(self, pod, mount, volume, group, changes) -> Place:
        source = self.path / f"{pod}-{volume['name']}"
        if "emptyDir" in volume:
            place = Place.empty(mount["mountPath"], source, group)
            return replace(place, source=source / mount.get("subPath", ""))
        kind, named = ("secret", "secretName") if "secret" in volume else ("configMap", "name")
        files = self._generated(volume[kind][named])
        mode = changes.get("mode", volume[kind].get("defaultMode", 0o644))
        # Under fsGroup, group and its permission to read are added to what the mode says.
        mode |= 0o440 if group else 0
        return Place.secret(mount["mountPath"], source, files, mode, group)

    def _generated(self, name: str) -> dict[str, bytes]:
        made = self.manifests["Kustomization/kustomization"]
        [found] = [
            each
            for each in (*made["secretGenerator"], *made["configMapGenerator"])
            if each["name"] == name
        ]
        return {Path(file).name: self.files[Path(file).name] for file in found["files"]}

    def client(self, program: str) -> Pod:
        """A pod of a user, with a secret of its own."""
        config = {name: self.files[name] for name in ("roster", "policy.yaml")}
        keys = {name: self.files[name] for name in ("carol.key", "audit.key")}
        return Pod(
            "client", 10003, 10003,
            ["python", "-c", program.replace("ADDRESS", "safeser://safeser-scheduler:8786")],
            {
                "DASK_SAFESER__IDENTITY": "/keys/carol.key",
                "DASK_SAFESER__POLICY": "/config/policy.yaml",
                "DASK_SAFESER__ROSTER": "/config/roster",
                "DASK_SAFESER__AUDIT": "/logs/client",
            },
            [
                Place.secret("/keys", self.path / "client-keys", keys, 0o440, 10003),
                Place.secret("/config", self.path / "client-config", config, 0o644, 0),
                Place.empty("/logs", self.path / "client-logs", 10003),
            ],
            groups=[10003],
            hosts={"safeser-scheduler": SCHEDULER},
        )  # fmt: skip


@pytest.fixture
def cluster(manifests, files, tmp_path):
    return Cluster(manifests, files, tmp_path)


def probe(cluster, network, pod, name):
    [container] = cluster.manifests[f"Deployment/safeser-{pod.name}"]["spec"]["template"]["spec"][
        "containers"
    ]
    return network.inside(pod, container[name]["exec"]["command"])


def test_the_pods_of_the_manifests_work(cluster, network, keys, tmp_path):
    scheduler = cluster.pod("scheduler", SCHEDULER)
    worker = cluster.pod("worker", WORKER)
    running = [network.start(scheduler), network.start(worker)]
    for pod, process in zip((scheduler, worker), running, strict=True):

        def healthy(pod=pod, process=process):
            assert process.poll() is None, network.logs()
            return probe(cluster, network, pod, "livenessProbe").returncode == 0

        until(f"the probe of {pod.name}", healthy)
    check_work(network, cluster.client(PROGRAM))
    address = "safeser://safeser-scheduler:8786"
    for pod, asked in ((scheduler, ["--role=scheduler"]), (worker, ["--role=worker", address])):
        said = network.inside(pod, ["safeser", "doctor", "--timeout=30", *asked])
        assert said.returncode == 0, said.stdout + said.stderr
    for name in ("scheduler", "worker"):
        logs = tmp_path / f"{name}-work" / "logs" / name
        assert verify(logs, key=keys / "audit.key").ok
    refused = network.log("scheduler") + network.log("worker")
    assert "did not authenticate" not in refused  # the probes connect to the web server only


def test_a_probe_of_what_does_not_run_fails(cluster, network):
    scheduler = cluster.pod("scheduler", SCHEDULER)
    scheduler.command = ["sleep", "60"]
    network.start(scheduler)
    until("the pod", lambda: network.inside(scheduler, ["true"]).returncode == 0)
    assert probe(cluster, network, scheduler, "livenessProbe").returncode != 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"mode": 0o644}, "defaultMode: 0440"),
        ({"fsGroup": 0, "mode": 0o440}, "'fsGroup'"),
        ({"fsGroup": 0, "mode": 0o400}, "Permission denied"),
    ],
)
def test_a_secret_that_is_mounted_otherwise_is_refused_with_what_to_set(
    cluster, network, changes, says
):
    code, said = network.run(cluster.pod("scheduler", SCHEDULER, **changes))
    assert code == 2, said
    [line] = [each for each in said.splitlines() if each.startswith("safeser: ")]
    assert says in line
    assert "/etc/safeser/keys/scheduler.key" in line
