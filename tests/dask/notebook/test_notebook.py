"""What a notebook does on ``tcp://`` it does on ``safeser://`` under policy ``default``."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.dask.notebook.cells import operations
from tests.dask.notebook.running import BEGINNINGS, OPERATIONS
from tests.processes import base_environment
from verification.golden import policies
from verification.golden.__main__ import golden
from verification.golden.traces import Trace

PROJECT = Path(__file__).parents[3]
DOCS = PROJECT / "docs"

#: What differs, with a part of the refusal; docs/decisions/0031-ordinary-notebooks.md says why.
DIFFERENT = {
    "xarray: open_mfdataset(parallel=True)": "leave out parallel=True",
    "client: recreate_error_locally": "rule: peer.unsent",
}


@pytest.fixture(scope="module")
def outcomes(clusters, tmp_path_factory):
    """What each operation printed on both schemes, in kernels that run beside each other."""
    cluster = clusters["default"]
    shared = {"PYTHONPATH": str(PROJECT)}
    for variable in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "MPLCONFIGDIR"):
        shared[variable] = str(tmp_path_factory.mktemp(variable.lower()))
    environments = {
        "tcp": base_environment() | shared,
        "safeser": cluster.environment("client", SCHEDULER=cluster.address, **shared),
    }
    folders = {"tcp": tmp_path_factory.mktemp("tcp"), "safeser": cluster.path}

    def run(scheme):
        # In processes of their own: event loops and sockets of kernels stay where they were made.
        return subprocess.run(
            [sys.executable, "-m", "tests.dask.notebook.running", scheme],
            cwd=folders[scheme],
            env=environments[scheme],
            stdout=subprocess.PIPE,
            text=True,
        )

    def shown(scheme):
        ended = run(scheme)
        if ended.returncode and scheme == "tcp":
            # Stock Dask, seen once to wait for ever for one worker's value of another: what it
            # shows is what safeser is compared with, and no property of safeser.
            ended = run(scheme)
        ended.check_returncode()
        return json.loads(ended.stdout.splitlines()[-1])

    with ThreadPoolExecutor() as both:
        return dict(zip(BEGINNINGS, both.map(shown, BEGINNINGS), strict=True))


@pytest.mark.cluster
@pytest.mark.unmeasured
def test_operations_of_a_notebook_are_as_on_tcp(outcomes):
    stock, ours = outcomes["tcp"], outcomes["safeser"]
    assert not [name for name, text in stock.items() if not text.startswith("shown ")]
    found = {name: (stock[name], text) for name, text in ours.items() if text != stock[name]}
    unlike = found.keys() ^ DIFFERENT.keys()
    assert not unlike, "\n".join(f"{name}: {found.get(name)}" for name in sorted(unlike))
    for name, ending in DIFFERENT.items():
        assert ending in ours[name]
    assert len(stock) >= 100


def table():
    """Return the rows of the table in docs/how-to/notebooks.md, as the operations have them."""
    _, cells = operations(*OPERATIONS)
    for cell in cells:
        differs = f"{cell.area}: {cell.title}" in DIFFERENT
        yield f"| {cell.area} | {cell.title} | {'differs' if differs else 'as on tcp'} |"


def test_the_page_lists_what_is_tested():
    page = (DOCS / "how-to" / "notebooks.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.endswith(("| as on tcp |", "| differs |"))]
    assert rows == list(table())


def test_the_table_by_policy_has_operations_that_there_are_and_these_differences():
    assert policies.PAGE.read_text("utf-8") == policies.page()
    _, cells = operations(*OPERATIONS)
    there = {f"{cell.area}: {cell.title}" for cell in cells}
    there |= {f"workloads: {name}" for name in Trace.load(golden("default")).results}
    named = [name for row in policies.DIFFERENT for name in row.operations]
    assert len({*named} & there) == len(named)
    under_default = [row for row in policies.DIFFERENT if "default" in row.policies]
    here = {name for row in under_default for name in row.operations if name in DIFFERENT}
    assert here == DIFFERENT.keys()


def test_each_difference_is_a_decision():
    page = (DOCS / "decisions" / "0031-ordinary-notebooks.md").read_text("utf-8")
    for name in DIFFERENT:
        assert name.partition(": ")[2].partition("(")[0] in page
