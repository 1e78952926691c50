"""Bad input to the stock commands: one line that says what to do, and exit code 2."""

from __future__ import annotations

import os

import pytest

pytestmark = pytest.mark.cluster

OPTIONS = ("--host", "127.0.0.1", "--no-dashboard")
SCHEDULER = ("scheduler", "--protocol", "safeser", "--port", "0", *OPTIONS)
WORKER = ("worker", "safeser://127.0.0.1:9", "--nthreads", "1", *OPTIONS)

ONE_PRINCIPAL = """
safeser: 1
name: small
revision: 1
principals: {other: {}, another: {}}
contexts:
  - {name: only, sender: other, recipient: another}
"""


def no_key(folder):
    return {"DASK_SAFESER__IDENTITY": str(folder.path / "no-such.key")}, "no-such.key"


def not_listed(folder):
    (folder.path / "small.yaml").write_text(ONE_PRINCIPAL)
    return {"DASK_SAFESER__POLICY": str(folder.path / "small.yaml")}, "'small'"


def no_policy(folder):
    (folder.path / "broken.yaml").write_text("safeser: [1\n")
    return {"DASK_SAFESER__POLICY": str(folder.path / "broken.yaml")}, "broken.yaml"


def open_key(folder):
    for name in ("scheduler", "nanny", "worker"):
        (folder.keys / f"{name}.key").chmod(0o644)
    return {}, "chmod"


@pytest.mark.parametrize("bad", [no_key, not_listed, no_policy, open_key])
@pytest.mark.parametrize("role", ["scheduler", "worker"])
def test_one_line_and_exit_code_2(folder, role, bad):
    changed, named = bad(folder)
    environment = folder.environment(role, **changed)
    if "DASK_SAFESER__IDENTITY" in changed:
        environment.pop("DASK_SAFESER__NANNY__IDENTITY", None)
    dask = os.path.join(os.path.dirname(os.sys.executable), "dask")
    command = SCHEDULER if role == "scheduler" else WORKER
    ended = folder.call(dask, *command, environment=environment)
    lines = [line for line in ended.err.splitlines() if line.startswith("safeser: ")]
    assert ended.code == 2, ended.err
    assert len(lines) == 1, ended.err
    assert named in lines[0]
    assert "Traceback" not in ended.err
