"""What a client's call raises and what the logs say where the refusal is another process's.

The sentence: a refusal is one message, never repeated, the same text wherever it appears (client,
log); safeser's own frames are not part of its traceback.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("refused_calls.py")


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return the error of each call by its name, and what was logged meanwhile."""
    ended = subprocess.run(
        [sys.executable, str(PROGRAM)],
        cwd=tmp_path_factory.mktemp("refused"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    logged = {}
    for part in ended.stderr.split("--- ")[1:]:
        name, _, text = part.partition("\n")
        logged[name] = text
    return json.loads(ended.stdout.splitlines()[-1]), logged


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["scatter", "scatter to all"])
def test_a_worker_s_refusal_is_raised_where_the_scheduler_passed_it_on(ran, name):
    said, logged = ran
    error = said[name]
    assert error["type"] == "PayloadError"
    assert error["text"].startswith("no type __main__:Parcel is registered here")
    assert "rule: families.type, on worker" in error["text"]
    assert "/safeser/dask/" not in error["shown"]
    assert error["shown"].count("no type __main__:Parcel") == 1
    # The log may come later than the answer: it is another process's.
    assert "Exception while handling" not in "".join(logged.values())
    assert "Traceback" not in "".join(logged.values())


@pytest.mark.cluster
def test_each_refusal_is_logged_once(ran):
    _, logged = ran
    assert "".join(logged.values()).count("no type __main__:Parcel is registered here") == 2
