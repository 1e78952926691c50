"""The demo's folder: private, new, and with an impostor whom nobody lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo.clusters import _announced, dask_command, dask_environment
from examples.demo.folder import PRINCIPALS, Folder
from safeser.errors import ConfigError
from safeser.identities import ROSTER
from safeser.identity import Identity, Roster
from safeser.policy import Policy


def test_identities_fit_the_ready_policy(tmp_path: Path) -> None:
    folder = Folder.make(tmp_path / "new")
    folder.make_identities()
    roster = Roster.load(folder.keys / ROSTER)
    assert set(Policy.load("demo").principals) == set(PRINCIPALS)
    for principal in PRINCIPALS:
        assert roster.principal_of(Identity.load(folder.key(principal)).public) == principal
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


def test_the_impostor_is_listed_by_himself_alone(tmp_path: Path) -> None:
    folder = Folder.make(tmp_path)
    folder.make_identities()
    impostor = Identity.load(folder.impostor / "alice.key")
    assert impostor.principal == "alice"
    assert Roster.load(folder.keys / ROSTER).principal_of(impostor.public) is None
    assert Roster.load(folder.impostor_roster).principal_of(impostor.public) == "alice"


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ConfigError, match="is not empty"):
        Folder.make(tmp_path)
    with pytest.raises(ConfigError, match="cannot be created"):
        Folder.make(tmp_path / "mine" / "new")


def test_without_a_name_it_is_a_new_temporary_one(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert Folder.make(None).path.parent == tmp_path


def test_the_users_own_dask_settings_do_not_reach_the_demo(tmp_path: Path) -> None:
    folder = Folder.make(tmp_path)
    quiet = dask_environment(
        folder, {"DASK_SAFESER__IDENTITY": "x", "DASK_DISTRIBUTED__X": "y", "HOME": "/h"}
    )
    assert quiet["HOME"] == "/h"
    assert {key for key in quiet if key.startswith("DASK")} == {"DASK_CONFIG"}


def test_a_scheduler_file_that_is_not_whole_is_no_address(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.json"
    assert _announced(path) is None
    path.write_text('{"address": "tcp')
    assert _announced(path) is None
    path.write_text('{"address": "tcp://127.0.0.1:1"}')
    assert _announced(path) == "tcp://127.0.0.1:1"


def test_without_dask_it_says_what_to_install(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    with pytest.raises(ConfigError, match=r"'\.\[demo\]'"):
        dask_command()
