"""Secrets as they are mounted load, and no other user chooses which file is read."""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import stat
import struct
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from safeser.audit import AuditKey
from safeser.errors import ConfigError
from safeser.identity import Identity, Roster, groups, paths
from safeser.identity import acl as lists
from safeser.identity.files import load
from safeser.identity.paths import Unfit
from safeser.policy import Policy
from safeser.policy.ready import locate
from tests.mounts import Mount

STRANGER = os.geteuid() + 1000


@pytest.fixture
def files(tmp_path):
    """The files of one process, by their names in the mounted folder."""
    made = tmp_path / "made"
    made.mkdir()
    Identity.generate("worker").save(made / "worker.key")
    AuditKey.new().save(made / "audit.key")
    Roster().save(made / "roster")
    (made / "policy.yaml").write_bytes(locate("default").read_bytes())
    return {each.name: each.read_bytes() for each in made.iterdir()}


@pytest.fixture
def mount(tmp_path, files):
    return Mount(tmp_path / "keys", files, mode=0o440)


#: What reads each of them.
READERS: dict[str, Callable[..., object]] = {
    "worker.key": Identity.load,
    "audit.key": AuditKey.load,
    "roster": Roster.load,
    "policy.yaml": Policy.load,
}
NAMES = sorted(READERS)
PRIVATE = ["audit.key", "worker.key"]


def refused(path, *words):
    with pytest.raises(ConfigError) as caught:
        READERS[path.name](path)
    for word in words:
        assert word in str(caught.value)
    return caught.value


def with_status(monkeypatch, of, **changes):
    """Have the system report *changes* of the status of one file or link."""
    stock_fstat, stock_stat = os.fstat, os.stat
    wanted = os.lstat(of).st_ino
    places = {"st_mode": 0, "st_uid": 4, "st_gid": 5}

    def changed(status):
        if status.st_ino != wanted:
            return status
        fields = list(status)
        for name, value in changes.items():
            fields[places[name]] = value
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", lambda *a: changed(stock_fstat(*a)))
    monkeypatch.setattr(os, "stat", lambda *a, **k: changed(stock_stat(*a, **k)))


def as_somebody_else(monkeypatch, *groups):
    """Run as a user who is neither root nor the owner of any file here."""
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    monkeypatch.setattr(os, "getegid", lambda: STRANGER)
    monkeypatch.setattr(os, "getgroups", lambda: list(groups))


# --- layouts that people have --------------------------------------------------------------------


def test_a_secret_that_is_replaced_while_it_is_read_is_read_again(mount, files, monkeypatch):
    stock = os.readlink
    swapped: list[str] = []

    def then_replaced(name, **options):
        target = stock(name, **options)
        if name == "..data" and not swapped:
            swapped.append(target)
            monkeypatch.setattr(os, "readlink", stock)
            mount.update(files)  # what was read leads nowhere any more
        return target

    monkeypatch.setattr(os, "readlink", then_replaced)
    assert Identity.load(mount.path / "worker.key").principal == "worker"
    assert swapped


def test_a_secret_that_is_never_there_is_not_looked_for_for_ever(mount, monkeypatch):
    walks: list[str] = []
    stock = paths._walk
    monkeypatch.setattr(paths, "_walk", lambda path: (walks.append(path), stock(path))[1])
    refused(mount.path / "..data" / ".." / "none" / "worker.key", "does not exist")
    assert len(walks) == 3


@pytest.mark.parametrize("name", NAMES)
def test_a_secret_of_root_for_the_group_of_a_process_loads(mount, name, monkeypatch):
    """As ``fsGroup`` mounts it for a process that is not root."""
    status = (mount.data / name).stat()
    with_status(monkeypatch, mount.data / name, st_uid=0)
    for link in (mount.path / name, mount.path / "..data"):
        with_status(monkeypatch, link, st_uid=0)
    with_status(monkeypatch, mount.path, st_uid=0)
    as_somebody_else(monkeypatch, status.st_gid)
    READERS[name](mount.path / name)


def test_chains_of_links_absolute_ones_and_paths_from_here_lead_there(mount, tmp_path, monkeypatch):
    (tmp_path / "run").symlink_to(mount.path)  # /run/secrets, as some systems have it
    (tmp_path / "far").symlink_to(tmp_path / "run" / "worker.key")
    (tmp_path / "near").symlink_to(os.path.join("keys", "..", "far"))
    (tmp_path / "named").mkdir()
    (tmp_path / "named" / "worker.key").symlink_to("../near")
    monkeypatch.chdir(mount.data)
    for path in ("run/worker.key", "named/worker.key", "named//.././run/worker.key"):
        assert Identity.load(f"{tmp_path}/{path}").principal == "worker"
    for path in ("worker.key", "../worker.key", "./../..data/worker.key"):
        assert Identity.load(path).principal == "worker"


def test_a_folder_that_may_be_searched_and_not_listed_is_passed(mount, tmp_path):
    tmp_path.chmod(0o311)
    try:
        assert Identity.load(mount.path / "worker.key").principal == "worker"
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("name", NAMES)
def test_a_secret_of_kubernetes_loads_and_nothing_is_written_there(mount, name):
    """Mounts are read-only: no file is opened for writing, made, linked, renamed or removed."""
    assert (mount.path / name).is_symlink()
    assert (mount.path / "..data").is_symlink()
    seen: list[str] = []
    watched = {"os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.chmod"}

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE
        if recording and (event in watched or writes):
            seen.append(event)

    recording = False
    sys.addaudithook(watch)  # it stays, and sees nothing more once this is over
    recording = True
    READERS[name](mount.path / name)
    recording = False
    assert seen == []


# --- who else may read it ------------------------------------------------------------------------


def chmod(mode):
    return lambda at, patch: at.chmod(mode)


def strangers(at, patch):
    """Have a file, link or folder belong to somebody else."""
    with_status(patch, at, st_uid=STRANGER)


#: By its name, what of a mounted file somebody else may have, write or choose.
PLACES = {
    "file": lambda mount, name: mount.data / name,
    "link": lambda mount, name: mount.path / name,
    "..data": lambda mount, name: mount.path / "..data",
    "folder": lambda mount, name: mount.data,
    "folder above": lambda mount, name: mount.path,
    "folder above both": lambda mount, name: mount.path.parent,
}
FOLDERS = [place for place in PLACES if place.startswith("folder")]
PUBLIC = ["policy.yaml", "roster"]

#: Files, what of them is changed, how, and what is said of it at *at*.
REFUSED = [
    *(
        (PRIVATE, "file", chmod(mode), [f"can be {word} by others", f"{mode:04o}", "chmod 600"])
        for word, mode in (
            *(("used", mode) for mode in (0o444, 0o644, 0o404, 0o441, 0o604, 0o601, 0o602)),
            *(("changed", mode) for mode in (0o660, 0o610, 0o650, 0o620)),
        )
    ),
    (NAMES, "file", strangers, ["belongs to another user", str(STRANGER)]),
    (PUBLIC, "file", chmod(0o464), ["written by others", "0464", "chmod go-w"]),
    *(
        (NAMES, link, strangers, ["symbolic link {at}", "another user", str(STRANGER), "Name the"])
        for link in ("link", "..data")
    ),
    (["policy.yaml"], "..data", strangers, ["config.file-link"]),
    (["policy.yaml"], "folder", strangers, ["config.file-folder"]),
    *(
        (NAMES, each, strangers, ["folder {at}, ", "another user", str(STRANGER), "Keep the file"])
        for each in FOLDERS
    ),
    # ``mv old.key worker.key`` in such a folder chooses among files that are all this user's.
    *(
        (["worker.key"], each, chmod(mode), ["folder {at}, ", f"{mode:04o}", "chmod go-w {at}"])
        for each in FOLDERS
        for mode in (0o777, 0o775, 0o2770, 0o703)
    ),
]


@pytest.mark.parametrize(("names", "place", "change", "words"), REFUSED)
def test_what_others_read_write_or_choose_is_refused(
    mount, monkeypatch, names, place, change, words
):
    monkeypatch.setattr(paths, "is_private_group", lambda number: False)
    for name in names:
        at = PLACES[place](mount, name)
        before = at.stat().st_mode
        with monkeypatch.context() as patch:
            change(at, patch)
            refused(mount.path / name, *(word.format(at=at) for word in words))
        at.chmod(before)
        READERS[name](mount.path / name)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_group_that_the_process_is_not_in_may_not_read_a_secret(mount, name, monkeypatch):
    group = (mount.data / name).stat().st_gid
    monkeypatch.setattr(os, "getegid", lambda: group + 1)
    monkeypatch.setattr(os, "getgroups", lambda: [group + 2])
    refused(mount.path / name, f"group {group}", f"({group + 1}, {group + 2})")
    monkeypatch.setattr(os, "getgroups", lambda: [group + 2, group])
    READERS[name](mount.path / name)
    monkeypatch.setattr(os, "getgroups", list)
    monkeypatch.setattr(os, "getegid", lambda: group)
    READERS[name](mount.path / name)


# Entries of an access control list: tag, permissions, id. 1 and 4 are the file's owner and group,
# 2 and 8 other users and groups, 16 the most that those get, 32 everybody else.
def acl(*entries):
    named = [(1, 4, 0xFFFFFFFF), *entries, (16, 4, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)]
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in named)


@pytest.fixture
def listed(mount, monkeypatch):
    """Return what gives the key an access control list; as the system reports it, mode 0440."""

    def given(data):
        monkeypatch.setattr(os, "getxattr", lambda handle, name: data, raising=False)
        return mount.path / "worker.key"

    return given


def test_a_credential_of_systemd_loads(listed, monkeypatch):
    """It belongs to root and its group; an entry for the user of the service lets it be read."""
    as_somebody_else(monkeypatch)
    path = listed(acl((2, 4, STRANGER), (4, 0, 0xFFFFFFFF)))
    with_status(monkeypatch, path.resolve(), st_uid=0, st_gid=0)
    for link in (path, path.parent / "..data", path.parent):
        with_status(monkeypatch, link, st_uid=0)
    assert Identity.load(path).principal == "worker"


#: Entries of a list, or its bytes, and what is said of it.
LISTS = [
    ([(2, 4, 0), (4, 4, 0xFFFFFFFF), (8, 4, os.getegid()), (8, 0, STRANGER)], None),
    ([(2, 4, STRANGER), (4, 0, 0xFFFFFFFF)], f"can be read by user {STRANGER}"),
    ([(8, 4, STRANGER), (4, 0, 0xFFFFFFFF)], f"can be read by group {STRANGER}"),
    (b"", "access control list of an unknown form"),
    (b"\1\0\0\0", "access control list of an unknown form"),
    (acl()[:-1], "access control list of an unknown form"),
]


@pytest.mark.parametrize(("entries", "says"), LISTS)
def test_an_access_control_list_lets_no_stranger_in(listed, entries, says):
    path = listed(entries if isinstance(entries, bytes) else acl(*entries))
    if says is None:
        assert Identity.load(path).principal == "worker"
    else:
        refused(path, says)


def test_a_system_without_access_control_lists_has_modes(listed, mount, monkeypatch):
    monkeypatch.delattr(os, "getxattr", raising=False)
    assert Identity.load(mount.path / "worker.key").principal == "worker"


def test_a_list_of_the_real_system_is_read_as_it_stands(mount):
    path = mount.data / "worker.key"
    if not hasattr(os, "setxattr"):
        assert not lists.has_acl(0)
        return
    path.chmod(0o600)
    try:
        os.setxattr(path, "system.posix_acl_access", acl((2, 4, STRANGER), (4, 0, 0xFFFFFFFF)))
    except OSError:  # this file system has none, and the mode says all there is
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert Identity.load(path).principal == "worker"
        return
    assert stat.S_IMODE(path.stat().st_mode) == 0o440
    refused(path, f"user {STRANGER}")


# --- who else may choose which file it is --------------------------------------------------------


class OwnGroups:
    """A user database in which this process's user has a group of his own, or shares it."""

    def __init__(self, monkeypatch, mount, *, name="dave", members=()):
        number = mount.path.stat().st_gid
        user = SimpleNamespace(pw_name="dave", pw_gid=number)
        group = SimpleNamespace(gr_name=name, gr_mem=list(members))
        monkeypatch.setattr(groups.pwd, "getpwuid", lambda _: user)
        monkeypatch.setattr(groups.grp, "getgrgid", lambda _: group)


@pytest.mark.parametrize(
    ("group", "private"),
    [
        ({}, True),
        ({"members": ["dave"]}, True),
        ({"name": "team"}, False),
        ({"members": ["dave", "erin"]}, False),
    ],
)
def test_the_group_that_a_user_has_alone_may_write_to_folders(mount, monkeypatch, group, private):
    """What a user makes under ``umask 002`` has mode 0775 and a group of the user's name."""
    OwnGroups(monkeypatch, mount, **group)
    mount.path.chmod(0o775)
    if private:
        assert Identity.load(mount.path / "worker.key").principal == "worker"
        mount.path.chmod(0o777)
    refused(mount.path / "worker.key", "others can write to")
    number = mount.path.stat().st_gid
    assert groups.is_private_group(number) is private
    assert not groups.is_private_group(number + 1)


def test_a_user_that_no_database_lists_has_no_private_group(monkeypatch):
    def unknown(number):
        raise KeyError(number)

    monkeypatch.setattr(groups.pwd, "getpwuid", unknown)
    assert not groups.is_private_group(os.getegid())


@pytest.mark.parametrize("listed", [True, False])
def test_behind_the_bits_of_a_private_group_may_be_an_access_control_list(
    mount, monkeypatch, listed
):
    """In a folder that cannot be listed as well."""
    OwnGroups(monkeypatch, mount)
    mount.path.chmod(0o775)
    stock = os.open

    def unlisted(name, flags, *rest, **options):
        if name == os.curdir:
            raise PermissionError(13, "Permission denied")
        return stock(name, flags, *rest, **options)

    if listed:
        found = acl((2, 7, STRANGER))
        monkeypatch.setattr(os, "getxattr", lambda handle, name: found, raising=False)
    else:
        monkeypatch.setattr(os, "open", unlisted)
    refused(mount.path / "roster", "others can write to")


def test_a_link_by_which_a_folder_is_reached_is_judged_as_well(mount, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "keys").symlink_to(mount.path)
    shared.chmod(0o777)
    refused(shared / "keys" / "worker.key", f"folder {shared}, ", "write to")
    shared.chmod(0o1777)
    assert Identity.load(shared / "keys" / "worker.key").principal == "worker"


def test_a_config_map_is_mounted_read_only_in_a_folder_of_mode_0777(mount, monkeypatch):
    mount.path.chmod(0o777)
    refused(mount.path / "roster", "write to")
    fields = list(os.statvfs(mount.path))
    fields[8] |= os.ST_RDONLY
    monkeypatch.setattr(os, "fstatvfs", lambda _: os.statvfs_result(fields))
    Roster.load(mount.path / "roster")


def test_a_link_cannot_be_put_in_the_place_of_what_was_looked_at(mount, tmp_path, monkeypatch):
    """Between the look and the opening, another user of the folder swaps the file for a link."""
    (tmp_path / "other.key").write_bytes((mount.path / "worker.key").read_bytes())
    (tmp_path / "other.key").chmod(0o600)
    stock = os.open

    def swapped(name, flags, *rest, **options):
        if name == "plain.key":
            (tmp_path / name).unlink()
            (tmp_path / name).symlink_to("other.key")
        return stock(name, flags, *rest, **options)

    Identity.generate("worker").save(tmp_path / "plain.key")
    monkeypatch.setattr(os, "open", swapped)
    with pytest.raises(Unfit):
        load(tmp_path / "plain.key", "private", limit=1000)


def test_a_folder_cannot_be_put_in_the_place_of_what_was_looked_at(mount, tmp_path, monkeypatch):
    """Another user swaps a folder for a link to another folder of this user."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "worker.key").write_bytes((mount.path / "worker.key").read_bytes())
    stock = os.open

    def swapped(name, flags, *rest, **options):
        if name == "keys":
            monkeypatch.setattr(os, "open", stock)
            mount.path.rename(tmp_path / "before")
            (tmp_path / "keys").symlink_to("other")
        return stock(name, flags, *rest, **options)

    monkeypatch.setattr(os, "open", swapped)
    refused(mount.path / "worker.key", "cannot be read")


@pytest.mark.parametrize(
    ("shape", "says"), [("folder", "a folder"), ("pipe", "a pipe"), ("socket", "a socket")]
)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_file_is_refused_without_opening_it(mount, name, shape, says, monkeypatch):
    path = mount.data / name
    path.unlink()
    server = socket.socket(socket.AF_UNIX)
    if shape == "folder":
        path.mkdir()
    elif shape == "pipe":
        os.mkfifo(path)
    else:
        monkeypatch.chdir(mount.data)  # such an address has at most 107 characters
        server.bind(name)
    server.close()
    opened: list[str] = []
    stock = os.open
    monkeypatch.setattr(os, "open", lambda n, *a, **k: (opened.append(n), stock(n, *a, **k))[1])
    refused(mount.path / name, f"is {says}, not a regular file")
    with pytest.raises(Unfit, match="is a device"):
        load("/dev/null", "private", limit=10)
    assert not {name, "null"} & set(opened)


def test_a_strangers_link_is_never_read(mount, monkeypatch):
    """The owner that is judged is the owner of the link that is read."""
    seen: list[str] = []
    stock = os.readlink
    monkeypatch.setattr(os, "readlink", lambda name, **o: (seen.append(name), stock(name, **o))[1])
    with_status(monkeypatch, mount.path / "..data", st_uid=STRANGER)
    refused(mount.path / "worker.key", "another user")
    assert seen == ["worker.key"]


def test_what_is_unfit_crosses_from_a_worker_to_its_nanny(tmp_path):
    """With the error that it led to; one that does not unpickle hides the reason."""
    with pytest.raises(Unfit) as caught:
        load(tmp_path / "none", "private", limit=10)
    assert vars(pickle.loads(pickle.dumps(caught.value))) == vars(caught.value)


@pytest.mark.parametrize(
    ("target", "says"), [("round", "symbolic links"), ("no", "does not exist")]
)
def test_links_in_a_circle_or_to_nothing_end(tmp_path, target, says):
    (tmp_path / "roster").symlink_to(target)
    (tmp_path / "round").symlink_to("roster")
    refused(tmp_path / "roster", says)


@pytest.mark.parametrize("path", ["", "/", ".", "..", "//"])
def test_paths_that_name_no_file(path):
    with pytest.raises(Unfit) as caught:
        load(path, "public", limit=10)
    assert caught.value.cause in ("missing", "shape")


# --- users who really are others, as containers have them -----------------------------------------

ALICE, BOB, FS_GROUP = 40_001, 40_002, 41_000
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root takes on other ids")


@contextlib.contextmanager
def acting_as(user, *groups):
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
def place():
    """A folder that every user may search."""
    with tempfile.TemporaryDirectory(prefix="safeser-users-") as made:
        os.chmod(made, 0o755)
        yield Path(made)


@as_root
@pytest.mark.parametrize("ids", [(ALICE, FS_GROUP), (FS_GROUP,)])
def test_a_process_that_is_not_root_reads_a_secret_by_a_group_of_its_own(place, files, ids):
    mount = Mount(place / "keys", files, mode=0o440)
    for path in (mount.path, *mount.path.rglob("*")):
        os.chown(path, 0, FS_GROUP, follow_symlinks=False)
    with acting_as(*ids):
        for name in PRIVATE:
            READERS[name](mount.path / name)


@as_root
def test_a_link_of_another_user_is_refused_in_a_sticky_folder(place):
    place.chmod(0o1777)
    Identity.generate("worker").save(place / "own.key")
    os.chown(place / "own.key", ALICE, ALICE)
    with acting_as(BOB):
        (place / "worker.key").symlink_to("own.key")
    with acting_as(ALICE):
        assert Identity.load(place / "own.key").principal == "worker"
        refused(place / "worker.key", "symbolic link", "another user", str(BOB))
