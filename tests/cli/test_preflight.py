"""``safeser preflight``: codes, texts, and modules that are not there."""

from __future__ import annotations

import pytest


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    (tmp_path / "preflight_jobs.py").write_text(
        "import threading\nlock = threading.Lock()\n"
        "class Held:\n    def __init__(self): self.lock = lock\nheld = [Held()]\n"
        "def clean(x):\n    return x\n"
    )
    monkeypatch.chdir(tmp_path)


def test_what_can_be_sent(safeser, jobs):
    ended = safeser("preflight", "preflight_jobs:clean")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("preflight_jobs:clean can be sent: family cloudpickle, ")


def test_what_cannot(safeser, jobs):
    ended = safeser("preflight", "preflight_jobs:held")
    assert (ended.code, ended.err) == (1, "")
    assert ended.out.splitlines()[1].startswith("- [0] -> attribute 'lock' -> _thread:lock: a lock")


def test_a_policy_refuses(safeser, jobs):
    told = ("preflight", "preflight_jobs:clean", "--policy", "demo", "--sender")
    assert safeser(*told, "alice").code == 0
    ended = safeser(*told, "bob")
    assert ended.code == 1
    assert "rule: submission.none" in ended.out
    assert safeser(*told, "bob", "--kind", "data").code == 1


@pytest.mark.parametrize(
    "target",
    ["no_such_module:x", "preflight_jobs:absent", "preflight_jobs", ":x", "preflight_jobs:"],
)
def test_what_is_not_there(safeser, jobs, target):
    ended = safeser("preflight", target)
    assert (ended.code, ended.out) == (2, "")
    assert f"there is no {target}" in ended.err
