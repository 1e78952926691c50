"""Keys that really belong to other users: this process takes on their ids, and the kernel checks.

Needs root, as containers have it; elsewhere ``test_mounted`` covers the rules by what they report.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from safeser.errors import ConfigError
from safeser.identity import Identity, Roster
from tests.mounts import Mount

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root takes on other ids")

ALICE, BOB, FS_GROUP = 40_001, 40_002, 41_000


@contextmanager
def acting_as(user: int, *groups: int) -> Iterator[None]:
    """Have this process the effective ids of *user*, whose primary group has the same number."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may search."""
    path = Path(tempfile.mkdtemp(prefix="safeser-users-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def mount(place):
    """A secret of Kubernetes under ``fsGroup``: root's, mode 0440, one group for the pod."""
    Identity.generate("worker").save(place / "made.key")
    Roster().save(place / "made")
    files = {"worker.key": (place / "made.key").read_bytes()}
    files["roster"] = (place / "made").read_bytes()
    mount = Mount(place / "keys", files, mode=0o440)
    for path in (mount.path, *mount.path.rglob("*")):
        os.chown(path, 0, FS_GROUP, follow_symlinks=False)
    return mount


def refused(path, *words):
    with pytest.raises(ConfigError) as caught:
        Identity.load(path)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("ids", [(ALICE, FS_GROUP), (FS_GROUP,)])
def test_a_process_that_is_not_root_reads_a_secret_by_a_group_of_its_own(mount, ids):
    with acting_as(*ids):
        assert Identity.load(mount.path / "worker.key").principal == "worker"
        Roster.load(mount.path / "roster")


def test_a_link_of_another_user_is_refused_in_a_sticky_folder(place):
    place.chmod(0o1777)
    Identity.generate("worker").save(place / "own.key")
    os.chown(place / "own.key", ALICE, ALICE)
    with acting_as(BOB):
        (place / "worker.key").symlink_to("own.key")
    with acting_as(ALICE):
        assert Identity.load(place / "own.key").principal == "worker"
        refused(place / "worker.key", "symbolic link", "another user", str(BOB))
