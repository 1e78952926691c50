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


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ("clean", 0, "preflight_jobs:clean can be sent: family cloudpickle, "),
        ("held", 1, "- [0] -> attribute 'lock' -> _thread:lock: a lock"),
        ("clean --policy demo --sender alice", 0, "can be sent"),
        ("clean --policy demo --sender bob", 1, "rule: submission.none"),
        ("clean --policy demo --sender bob --kind data", 1, ""),
    ],
)
def test_what_can_be_sent(safeser, jobs, words, code, says):
    ended = safeser("preflight", *f"preflight_jobs:{words}".split())
    assert (ended.code, ended.err) == (code, "")
    assert says in ended.out


@pytest.mark.parametrize(
    "target",
    ["no_such_module:x", "preflight_jobs:absent", "preflight_jobs", ":x", "preflight_jobs:"],
)
def test_what_is_not_there(safeser, jobs, target):
    ended = safeser("preflight", target)
    assert (ended.code, ended.out) == (2, "")
    assert "sendable.target" in ended.err
