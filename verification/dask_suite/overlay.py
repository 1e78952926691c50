"""A copy of the installed distributed with the tests of a checkout beside its modules.

The one rule: modules come from the installation and tests from the checkout, both unchanged. Tests
and the processes that they start then find each other under the names that they were written for.
"""

from __future__ import annotations

import compileall
import json
import shutil
import tomllib
from importlib.util import find_spec
from pathlib import Path

from safeser.identities import key_path, make_identities

__all__ = ["configure", "lay_out"]

_ROLES = ("scheduler", "worker", "nanny", "client")

#: Folders of tests that are run, and what else their modules import.
_TESTS = ("tests", "shuffle/tests")

#: What distributed's pytest.ini says that needs a plugin which is not installed here.
_NOT_OURS = ("timeout", "timeout_method", "addopts")

#: Markers of plugins that are not installed here.
_MARKERS = ("flaky: run again by pytest-rerunfailures",)


def lay_out(checkout: Path, folder: Path) -> None:
    """Make ``distributed`` and a configuration for pytest in *folder*."""
    spec = find_spec("distributed")
    assert spec is not None
    assert spec.origin is not None
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(spec.origin).parent, folder / "distributed", ignore=ignored)
    for tests in _TESTS:
        shutil.copytree(
            checkout / "distributed" / tests, folder / "distributed" / tests, ignore=ignored
        )
    # Each of hundreds of processes would compile all of it anew where none may write.
    compileall.compile_dir(folder, quiet=2)
    shutil.copy(checkout / "conftest.py", folder)
    (folder / "pytest.ini").write_text(_configuration(checkout / "pyproject.toml"))


def _configuration(project: Path) -> str:
    """Return distributed's own settings of pytest as an ini file: warnings are errors there."""
    options = tomllib.loads(project.read_text())["tool"]["pytest"]["ini_options"]
    lines = ["[pytest]"]
    for name, value in options.items():
        if name in _NOT_OURS:
            continue
        values = value if isinstance(value, list) else [str(value)]
        if name == "markers":
            values = [*values, *_MARKERS]
        lines += [f"{name} =", *(f"    {each}" for each in values)]
    return "\n".join(lines) + "\n"


def configure(folder: Path, policy: str) -> None:
    """Make *folder* one of Dask's configuration: ``safeser://`` by default, a key for each role.

    :param policy: file beside this module.
    """
    keys = folder / "keys"
    make_identities(keys, _ROLES)
    settings = {
        "distributed": {"comm": {"default-scheme": "safeser"}},
        "safeser": {
            "policy": str(Path(__file__).with_name(policy)),
            "audit": str(folder / "audit"),
            **{role: {"identity": str(key_path(keys, role))} for role in _ROLES},
        },
    }
    (folder / "safeser.yaml").write_text(json.dumps(settings))  # JSON is YAML
