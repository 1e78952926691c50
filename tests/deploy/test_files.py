"""The files of examples/deploy hold to their schemas, and what one names the other has."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from importlib.resources import files as resources
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from distributed.cli.dask_scheduler import main as scheduler_command
from distributed.cli.dask_worker import main as worker_command

from safeser.dask.settings import Settings
from tests.needs import needs

ENVIRONMENT = re.compile(r"DASK_SAFESER__(?:(?:WORKER|NANNY|SCHEDULER|CLIENT)__)?([A-Z_]+)\Z")
UNITS = ["safeser-scheduler.service", "safeser-worker.service"]
#: From the oldest that is still maintained on.
KUBERNETES = ["1.32", "1.37"]


def check_settings(environment):
    """Each variable is a setting that there is: a misspelt one would be refused, or unheard."""
    names = [name for name in environment if name.startswith("DASK_SAFESER")]
    assert names
    for name in names:
        match = ENVIRONMENT.match(name)
        assert match, name
        assert match[1].lower() in Settings.__dataclass_fields__, name


def check_command(words):
    """Dask's own command line takes these words."""
    command = {"scheduler": scheduler_command, "worker": worker_command}[words[1]]
    context = command.make_context(words[1], list(words[2:]))
    assert context.params["host"]
    if words[1] == "scheduler":
        assert context.params["protocol"] == "safeser"
    else:
        assert context.params["scheduler"].startswith("safeser://")


# --- systemd -------------------------------------------------------------------------------------


def settings_of(path: Path) -> list[tuple[str, str, str]]:
    section, found = "", []
    for line in path.read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, separator, value = line.partition("=")
            assert separator, line
            found.append((section, name, value))
    return found


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_names_what_it_loads(deploy, name):
    found = settings_of(deploy / "systemd" / name)
    assert {section for section, _, _ in found} == {"Unit", "Service", "Install"}
    one = {key: value for section, key, value in found if section == "Service"}
    assert one["LogsDirectoryMode"] == "0700"
    assert one["RestartPreventExitStatus"] == "2"
    loaded = {value.partition(":")[0] for _, key, value in found if key == "LoadCredential"}
    environment = dict(value.partition("=")[::2] for _, key, value in found if key == "Environment")
    check_settings(environment)
    named = {value[3:] for value in environment.values() if value.startswith("%d/")}
    assert named == loaded
    for variable in re.findall(r"\$\{(\w+)\}", one["ExecStart"]):
        assert variable in environment
    words = re.sub(r"\$\{(\w+)\}", lambda m: environment[m[1]], one["ExecStart"]).split()
    assert words[0] == "/opt/safeser/bin/dask"
    check_command(words)
    folders = {"LogsDirectory": "/var/log", "CacheDirectory": "/var/cache"}
    below = [f"{folders[key]}/{one[key]}/" for key in folders if key in one]
    assert environment["DASK_SAFESER__AUDIT"].startswith(tuple(below))


@needs("systemd-analyze")
@pytest.mark.parametrize(
    ("name", "setting"),
    [
        *((f"systemd/{name}", "LogsDirectory=") for name in UNITS),
        ("confined/safeser-analysts.service", "PrivateIPC="),
    ],
)
def test_systemd_finds_nothing_wrong_with_a_unit(deploy, tmp_path, name, setting):
    text = re.sub(r"/opt/safeser/bin/\w+", "/bin/true", (deploy / name).read_text())
    unit = tmp_path / Path(name).name
    for said, wrong in (("", setting), (setting[:-2], f"{setting[:-2]}x=")):
        unit.write_text(text.replace(setting, wrong))
        ended = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert said in ended.stdout + ended.stderr  # it does look
        assert said or (ended.returncode, ended.stdout + ended.stderr) == (0, "")


def test_users_of_the_units_are_made(deploy):
    made = re.findall(r"^u (\S+)", (deploy / "systemd" / "safeser.sysusers").read_text(), re.M)
    found = [settings_of(deploy / "systemd" / name) for name in UNITS]
    used = [value for settings in found for _, key, value in settings if key == "User"]
    assert made == used


# --- compose -------------------------------------------------------------------------------------


def test_the_compose_file_holds_to_its_schema(compose):
    text = resources("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json")
    schema = jsonschema.Draft202012Validator(json.loads(text.read_text()))
    schema.validate(compose)
    wrong = {**compose, "services": {"scheduler": {"secret": ["x"]}}}
    assert not schema.is_valid(wrong)


def test_services_name_what_there_is(compose):
    for name, service in compose["services"].items():
        check_settings(service["environment"])
        assert set(service["secrets"]) <= set(compose["secrets"])
        mounted = {f"/run/secrets/{each}" for each in service["secrets"]}
        mounted |= {each["target"] for each in service["configs"]}
        for value in service["environment"].values():
            if value.startswith(("/run", "/etc")):
                assert value in mounted, (name, value)
        words = service["command"]
        if words[0] == "sh":
            words = words[2].removeprefix("exec ").replace('"$$(hostname -i)"', "192.0.2.1").split()
        check_command(words)
        assert service["read_only"] is True
    keys = {name: set(service["secrets"]) for name, service in compose["services"].items()}
    assert keys["scheduler"] & keys["worker"] == {"audit.key"}


# --- Kubernetes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifests_hold_to_the_schemas_of_kubernetes(deploy, manifests, version):
    checked = [each for each in manifests.values() if each["kind"] != "Kustomization"]
    checked += yaml.safe_load_all((deploy / "confined" / "kubernetes.yaml").read_text())
    assert len(checked) == 5 + 2
    for each in checked:
        kubernetes_validate.validate(each, version, strict=True)
    wrong = json.loads(json.dumps(manifests["Deployment/safeser-worker"]))
    wrong["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, version, strict=True)


def pods(manifests):
    return {
        name: each["spec"]["template"]["spec"]
        for name, each in manifests.items()
        if each["kind"] == "Deployment"
    }


def test_pods_name_what_is_generated(manifests):
    made = manifests["Kustomization/kustomization"]
    generated = {
        each["name"]: {Path(file).name for file in each["files"]}
        for each in (*made["secretGenerator"], *made["configMapGenerator"])
    }
    for name, spec in pods(manifests).items():
        volumes = {each["name"]: each for each in spec["volumes"]}
        [container] = spec["containers"]
        mounted = set()
        for mount in container["volumeMounts"]:
            volume = volumes[mount["name"]]
            source = volume.get("secret", {}).get("secretName") or volume.get("configMap", {}).get(
                "name"
            )
            mounted |= {f"{mount['mountPath']}/{file}" for file in generated.get(source, ())}
        environment = {each["name"]: each.get("value", "192.0.2.1") for each in container["env"]}
        check_settings(environment)
        for value in environment.values():
            if value.startswith("/etc"):
                assert value in mounted, (name, value)
        check_command([environment.get(w.strip("$()"), w) for w in container["command"]])
        assert volumes["keys"]["secret"]["defaultMode"] == 0o440
        assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]


def test_no_pod_holds_the_key_of_another(manifests):
    made = manifests["Kustomization/kustomization"]
    secrets = {each["name"]: set(each["files"]) for each in made["secretGenerator"]}
    scheduler, worker = secrets["safeser-scheduler-keys"], secrets["safeser-worker-keys"]
    assert scheduler & worker == {"keys/audit.key"}
    assert not any("client" in file for file in scheduler | worker)


def test_pods_fit_the_standard_that_their_namespace_enforces(manifests):
    """``restricted`` of Kubernetes' Pod Security Standards, as far as these pods touch it."""
    labels = manifests["Namespace/dask"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for spec in pods(manifests).values():
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"]["type"] == "RuntimeDefault"
        assert not spec.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        for container in (*spec["initContainers"], *spec["containers"]):
            confined = container["securityContext"]
            assert confined["allowPrivilegeEscalation"] is False
            assert confined["capabilities"] == {"drop": ["ALL"]}
        allowed = {"name", "secret", "configMap", "emptyDir"}
        assert all(each.keys() <= allowed for each in spec["volumes"])


def test_probes_ask_the_web_server_where_the_command_binds_it(manifests):
    for name, spec in pods(manifests).items():
        [container] = spec["containers"]
        words = container["command"]
        bound = "127.0.0.1:8787"  # a scheduler's default under safeser
        if "--dashboard-address" in words:
            bound = words[words.index("--dashboard-address") + 1]
        probes = [value for key, value in container.items() if key.endswith("Probe")]
        assert len(probes) >= 2, name
        for probe in probes:
            assert set(probe) & {"exec", "httpGet", "tcpSocket"} == {"exec"}
            program = probe["exec"]["command"][2]
            ast.parse(program)
            assert f"http://{bound}/health" in program


# --- all ------------------------------------------------------------------------------------------


def test_keys_stay_out_of_every_file(deploy):
    for path in deploy.rglob("*"):
        if path.is_file():
            assert "private:" not in path.read_text()
            assert "safeser-identity" not in path.read_text()
