"""The table against what servers of the installed Dask register, in both directions.

``python -m verification.compat.operations`` compares it with the other releases that are supported.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from safeser.operations import OPERATIONS, installed, release
from tests.operations.comparison import differences

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def live() -> dict[str, Any]:
    program = Path(__file__).with_name("registered.py")
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_table_is_what_servers_of_the_installed_release_register(live: dict[str, Any]) -> None:
    assert release(live["version"]) == installed()
    assert list(differences(OPERATIONS, live)) == []
