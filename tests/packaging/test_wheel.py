"""What a user gets: the built wheel's files, metadata and entry points."""

from __future__ import annotations

import configparser
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import safeser

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=PROJECT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    [path] = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        yield archive


def metadata(wheel, name):
    return wheel.read(f"safeser-{safeser.__version__}.dist-info/{name}").decode()


def test_every_module_and_data_file_is_in_it(wheel):
    # Followed through the link, `policies` at the top is a folder of the package.
    expected = {
        f"safeser/{path.relative_to(PROJECT / 'safeser')}"
        for path in (PROJECT / "safeser").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    expected |= {f"safeser/policies/{path.name}" for path in (PROJECT / "policies").glob("*.yaml")}
    assert expected <= set(wheel.namelist())
    assert "safeser/py.typed" in expected
    assert {"safeser/policies/default.yaml", "safeser/policies/demo.yaml"} <= expected
    assert any(name.endswith(".toml") for name in expected)


def test_nothing_else_is_in_it(wheel):
    info = f"safeser-{safeser.__version__}.dist-info/"
    stray = [name for name in wheel.namelist() if not name.startswith(("safeser/", info))]
    assert stray == []
    assert len(wheel.namelist()) == len(set(wheel.namelist()))


def test_the_demo_is_not_in_it(wheel):
    assert (PROJECT / "examples" / "demo" / "attacks.py").exists()
    named = [name for name in wheel.namelist() if "demo" in name or "examples" in name]
    assert named == ["safeser/policies/demo.yaml", "safeser/policies/tests/demo.yaml"]


def test_entry_points(wheel):
    points = configparser.ConfigParser()
    points.read_string(metadata(wheel, "entry_points.txt"))
    assert points["console_scripts"]["safeser"] == "safeser.cli:main"
    assert points["distributed.comm.backends"]["safeser"] == "safeser.dask:backend"


def test_metadata(wheel):
    fields = Parser().parsestr(metadata(wheel, "METADATA"))
    assert fields["Version"] == safeser.__version__
    assert fields["Requires-Python"] == ">=3.11"
    assert fields["License-Expression"] == "BSD-3-Clause"
    extras = "arrow bench dask demo dev diskcache docs fuzz huey kombu landlock otel zmq"
    assert set(fields.get_all("Provides-Extra")) == set(extras.split())
    needed = [need for need in fields.get_all("Requires-Dist") if "extra ==" not in need]
    assert not [need for need in needed if need.startswith(("dask", "distributed"))]


def test_policies_load_from_the_unpacked_wheel(wheel, tmp_path):
    wheel.extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import safeser\n"
        f"assert safeser.__file__.startswith({str(tmp_path)!r})\n"
        "for name in ('default', 'demo'): safeser.Policy.load(name)\n"
        "safeser.pickles.loads(b'N.', profile=safeser.pickles.DATA_PROFILES)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)
