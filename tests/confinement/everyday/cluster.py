"""The operations on confined workers of the shared cluster and on stock Dask, and their files."""

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

from tests.confinement.everyday.running import SHOWN
from tests.confinement.site import Analysts
from tests.processes import base_environment

ROOT = Path(__file__).parents[3]
PROGRAM = Path(__file__).with_name("running.py")
#: In the table, of an operation whose value is that of stock Dask: types, dtypes and contents.
SAME = "as on stock Dask"

#: Seconds for all operations on a busy machine.
_PATIENCE = 180


def paths() -> str:
    return os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))


def start_stock(path: Path) -> subprocess.Popen[str]:
    """Start the same operations on stock Dask, with files of their own in *path*."""
    data, scratch = path / "data", path / "scratch"
    data.mkdir()
    scratch.mkdir()
    write_data(data)
    return subprocess.Popen(
        (sys.executable, str(PROGRAM), "tcp", "", str(data), str(scratch)),
        env={**base_environment(), "PYTHONPATH": paths()},
        cwd=path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def measure(site: Analysts, path: Path) -> dict[str, str]:
    """Return what became of each operation on the confined workers of *site*, by its name.

    What stock Dask shows in *path* is what it is compared with.
    """
    stock = start_stock(path)
    try:
        write_data(site.data)
        asked = ("safeser", site.address, str(site.data), str(site.scratch))
        ended = site.run("alice", PROGRAM, *asked, PYTHONPATH=paths(), timeout=_PATIENCE)
        ours = ended.answer
        out, _ = stock.communicate(timeout=_PATIENCE)
    finally:
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
