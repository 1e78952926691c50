"""The table against what servers of the installed Dask register, in both directions.

``python -m verification.compat.operations`` compares it with the other releases that are supported.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from safeser.operations import OPERATIONS, Encoding, installed, release
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


def test_each_kind_of_difference_is_seen(live: dict[str, Any]) -> None:
    echo = next(row for row in OPERATIONS if row.name == "echo")
    others = [row for row in OPERATIONS if row is not echo]

    def seen(*rows: Any, changed: Any = live) -> list[str]:
        return list(differences([*others, *rows], changed))

    place = "scheduler rpc echo"
    assert seen() == [f"{place}: not in the table"]
    assert seen(replace(echo, inline=True)) == [
        f"{place}: in the table, but not registered, or inline and registered"
    ]
    assert seen(replace(echo, takes={})) == [f"{place}: it lacks ['data'], and no handler takes []"]
    assert seen(replace(echo, fields={"gone": Encoding.RAW})) == [
        f"{place}: gone is no field of its handler"
    ]
    other = copy.deepcopy(live)
    other["handlers"]["scheduler"]["rpc"]["echo"]["any"] = True
    other["close"]["nanny"] = "no"
    other["first"] = []
    assert seen(echo, changed=other) == [
        f"{place}: takes any field",
        "a server does not answer close",
        "a client is not greeted first",
    ]
