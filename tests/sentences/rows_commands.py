"""Sentences of commands."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from unittest import mock

from safeser.cli import confined
from safeser.cli.confined import _require_modules, _require_paths
from safeser.cli.keys import _require_scheduler
from safeser.cli.policy import _write_page
from safeser.cli.preflight import _imported
from safeser.confinement.launch import _run_script
from safeser.identity import KeyState, edit
from safeser.identity.edit import RosterFile
from safeser.policy import Policy
from tests.sentences.sentence import Sentence


def keys(*listed: str) -> SimpleNamespace:
    return SimpleNamespace(keys_of=lambda principal: listed, entries=())


KEY = SimpleNamespace(fingerprint="k")


def listed(state: KeyState) -> SimpleNamespace:
    return SimpleNamespace(_listed=lambda public: SimpleNamespace(state=state, verifying=None))


def locked() -> None:
    with mock.patch.object(edit, "_TRIES", 0):
        edit._lock(-1, Path("roster"))


def not_confined() -> None:
    channel = SimpleNamespace(
        policy=Policy.load("default"), identity=SimpleNamespace(principal="worker")
    )
    with (
        mock.patch("safeser.confinement.launch.require_kernel"),
        mock.patch("safeser.dask.settings.unrecorded_channel", return_value=channel),
        mock.patch("safeser.dask.settings.settings_for"),
    ):
        confined.confined(["dask"])


def relative_modules() -> None:
    with mock.patch.dict("os.environ", PYTHONPATH="here"):
        _require_modules(())


ROWS = [
    Sentence(
        "config.page",
        lambda: _write_page(Policy.load("default"), Path("/no-such-folder/page.html")),
        "/no-such-folder/page.html cannot be written: No such file or directory",
    ),
    Sentence(
        "confined.command",
        lambda: _run_script("no-such-command", ()),
        "no installed package has a command 'no-such-command'",
    ),
    Sentence(
        "confined.modules",
        relative_modules,
        "PYTHONPATH has an entry that means another folder wherever a process starts",
    ),
    Sentence(
        "confined.path",
        lambda: _require_paths(SimpleNamespace(read=("/no-such-folder",), write=())),
        "the policy lets a confined process use a path that does not exist",
    ),
    Sentence(
        "roster.last-key",
        lambda: _require_scheduler(keys("one"), keys(), "default"),
        "that is the last active key of 'nanny', without which the cluster ends",
    ),
    Sentence(
        "roster.retired",
        lambda: RosterFile._retired(listed(KeyState.RETIRED), KEY),
        "key k is retired already",
    ),
    Sentence(
        "roster.state",
        lambda: RosterFile._verify_only(listed(KeyState.RETIRED), KEY),
        "key k is retired; an active key becomes verify-only",
    ),
    Sentence(
        "roster.signing",
        lambda: RosterFile._verify_only(listed(KeyState.ACTIVE), KEY),
        "key k has no signing key, and no signature could verify",
    ),
    Sentence("roster.locked", locked, "another process keeps the folder of roster locked"),
    Sentence(
        "confined.undemanded",
        not_confined,
        "policy 'default' does not say how 'worker' is confined",
    ),
    Sentence(
        "sendable.target",
        lambda: _imported("no_such_module:x"),
        "there is no no_such_module:x: No module named 'no_such_module'",
    ),
]
