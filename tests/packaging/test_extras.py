"""What an extra installs is what the code accepts."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from safeser.operations import FIRST

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())


@pytest.mark.parametrize("package", ["distributed", "dask[array,dataframe]"])
def test_the_dask_extra_installs_no_version_that_is_refused(package):
    oldest = ".".join(map(str, FIRST))
    assert f"{package}>={oldest}" in PROJECT["project"]["optional-dependencies"]["dask"]


def test_every_package_is_held_to_what_it_may_import():
    contracts = {each["id"]: each for each in PROJECT["tool"]["importlinter"]["contracts"]}
    packages = {
        f"safeser.{path.stem}"
        for path in (Path(__file__).parents[2] / "safeser").iterdir()
        if (path.is_dir() and (path / "__init__.py").exists()) or path.suffix == ".py"
    } - {"safeser.__init__"}
    for contract, may in (
        ("works-without-dask", {"safeser.dask"}),
        ("cloudpickle-in-pickles", {"safeser.pickles"}),
    ):
        assert set(contracts[contract]["source_modules"]) == packages - may, contract
