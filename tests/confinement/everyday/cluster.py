"""Two confined workers under the policy of examples/deploy/confined, and their files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from tests.confinement.conftest import without_capabilities
from tests.confinement.everyday.running import SHOWN, WORKERS
from tests.confinement.site import SAFESER, Site
from tests.conftest import base_environment

ROOT = Path(__file__).parents[3]
POLICY = ROOT / "examples" / "deploy" / "confined" / "policy.yaml"
PRINCIPALS = ("scheduler", "worker", "alice")
#: In the table, of an operation whose value is that of stock Dask: types, dtypes and contents.
SAME = "as on stock Dask"

#: Seconds for all operations on a busy machine.
_PATIENCE = 180


class Analysts(Site):
    """The workers of a group that is confined, and alice, who belongs to it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, PRINCIPALS, ports=1 + 2 * WORKERS)
        told = f"read: [{self.data}], write: [{self.scratch}], ports: {self.ports}, execute: false"
        stated = "read: [/data/sales], write: [/scratch/analysts], execute: false"
        policy = POLICY.read_text()
        assert stated in policy
        self.write_policy(policy.replace(stated, told))
        write_data(self.data)

    def begin(self) -> None:
        self.start_scheduler()
        listed = iter(self.ports[1:])
        for number in range(WORKERS):
            name = f"worker-{number}"
            command = [*without_capabilities(), SAFESER, "confined", "--"]
            command += [*self.worker_command(name), "--worker-port", str(next(listed))]
            command += ["--dashboard-address", f"127.0.0.1:{next(listed)}"]
            self.start(name, *command, environment=self.environment("worker"))

    def compute(self) -> dict[str, str]:
        """Return what each operation shows here, or its error."""
        asked = (*program("safeser"), self.address, str(self.data), str(self.scratch))
        environment = self.environment("alice", PYTHONPATH=paths())
        return dict(self.call(*asked, environment=environment, timeout=_PATIENCE).answer)


def program(scheme: str) -> tuple[str, ...]:
    return sys.executable, "-m", "tests.confinement.everyday.running", scheme


def paths() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


def start_stock(path: Path) -> subprocess.Popen[str]:
    """Start the same operations on stock Dask, with files of their own in *path*."""
    data, scratch = path / "data", path / "scratch"
    data.mkdir()
    scratch.mkdir()
    write_data(data)
    return subprocess.Popen(
        (*program("tcp"), "", str(data), str(scratch)),
        env={**base_environment(), "PYTHONPATH": paths()},
        cwd=path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def measure(path: Path) -> dict[str, str]:
    """Return what became of each operation on confined workers, by its name.

    What stock Dask shows is what it is compared with.
    """
    for name in ("stock", "confined"):
        (path / name).mkdir()
    stock = start_stock(path / "stock")
    site = Analysts(path / "confined")
    try:
        site.begin()
        ours = site.compute()
        out, _ = stock.communicate(timeout=_PATIENCE)
    finally:
        site.stop()
        stock.kill()
        stock.wait()
    assert stock.returncode == 0
    theirs = json.loads(out.splitlines()[-1])
    failed = {name: text for name, text in theirs.items() if not text.startswith(SHOWN)}
    assert not failed  # such an operation measures nothing
    return {name: outcome(theirs[name], text) for name, text in ours.items()}


def outcome(stock: str, confined: str) -> str:
    if confined == stock:
        return SAME
    if confined.startswith(SHOWN):
        return "gives another value"
    # Beside the rule, a message has keys of this run and the global that came first.
    rule = re.search(r"rule: ([a-z-]+\.[a-z-]+)", confined)
    return f"refused by `{rule[1]}`" if rule else confined


def rows(outcomes: dict[str, str]) -> list[str]:
    """Return the rows of the table in docs/explanation/everyday-operations.md."""
    named = (name.partition(": ") for name in outcomes)
    return [
        f"| {area} | {title} | {text} |"
        for (area, _, title), text in zip(named, outcomes.values(), strict=True)
    ]


def write_data(folder: Path) -> None:
    """Write what analysts read: the same every time."""
    table = pd.DataFrame(
        {
            "day": pd.date_range("2026-01-01", periods=60, freq="D"),
            "place": ["Bern", "Chur", "Genf"] * 20,
            "amount": np.arange(60),
            "weight": np.linspace(0, 1, 60),
        }
    )
    table.to_csv(folder / "sales-0.csv", index=False)
    table.assign(amount=table.amount + 60).to_csv(folder / "sales-1.csv", index=False)
    table.to_parquet(folder / "sales.parquet")
    (folder / "lines.json").write_text('{"a": 1}\n{"a": 2}\n')
    cube = xr.Dataset(
        {"t": (("time", "x", "y"), np.arange(240.0).reshape(24, 5, 2), {"units": "K"})},
        {"time": pd.date_range("2026-01-01", periods=24, freq="15D"), "x": np.arange(5)},
    )
    cube.isel(time=slice(0, 12)).to_netcdf(folder / "climate-0.nc")
    cube.isel(time=slice(12, 24)).to_netcdf(folder / "climate-1.nc")
    cube.chunk(time=6).to_zarr(folder / "climate.zarr", zarr_format=2)
