"""The locks: everything pinned, every file hashed, no index named, one set of versions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from safeser.dask.patches.fingerprints import known_sources
from safeser.operations import FIRST

PROJECT = Path(__file__).parents[2]
_PIN = re.compile(
    r"(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>[0-9][^ ;\\]*)(?: ; (?P<marker>[^\\]+?))?"
    r"(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})+)\Z"
)


def pins(lock):
    """Return name, version and marker of each pin; every line must belong to one."""
    text = (PROJECT / "requirements" / lock).read_text().rstrip("\n")
    found = [_PIN.match(entry) for entry in re.split(r"\n(?! )", text)]
    assert None not in found
    return {(pin["name"], pin["version"], pin["marker"] or "") for pin in found if pin}


def declared(*extras):
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    needs = list(project["dependencies"])
    for extra in extras:
        needs += project["optional-dependencies"][extra]
    names = {re.match(r"[A-Za-z0-9.-]+", need)[0].lower().replace(".", "-") for need in needs}
    return names - {"safeser"}


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("demo.lock", ("dask", "arrow", "landlock", "demo")),
        ("dev.lock", ("dask", "arrow", "demo", "landlock", "dev")),
        ("docs.lock", ("docs",)),
    ],
)
def test_a_lock_covers_what_is_declared(lock, extras):
    locked = {name for name, _, _ in pins(lock)}
    assert declared(*extras) <= locked
    assert {"hatchling", "editables"} <= locked  # what builds safeser itself


def test_the_demo_the_tests_and_the_site_run_the_same_versions():
    # Not their markers: what a test needs may need a package on more platforms.
    locks = ("demo.lock", "dev.lock", "docs.lock")
    demo, dev, docs = ({pin[:2] for pin in pins(lock)} for lock in locks)
    assert demo <= dev
    shared = {name for name, _ in dev} & {name for name, _ in docs}
    assert {pin for pin in docs if pin[0] in shared} <= dev


COMPAT = sorted(path.name for path in (PROJECT / "requirements").glob("compat-*.lock"))


@pytest.mark.parametrize("lock", COMPAT)
def test_releases_of_dask_run_with_what_the_tests_run_with(lock):
    release = lock.removeprefix("compat-").removesuffix(".lock")
    compat, dev = ({pin[:2] for pin in pins(each)} for each in (lock, "dev.lock"))
    kept = compat - dev
    assert {("dask", release), ("distributed", release)} <= kept | newest(release)
    assert {name for name, _ in kept} <= {"dask", "distributed", *REMOVED}


#: What releases before some need, and those since do not.
REMOVED = {"urllib3"}


def newest(release):
    """Return what dev.lock has as well, if that is of *release*."""
    found = {(name, version) for name, version, _ in pins("dev.lock")}
    return found & {("dask", release), ("distributed", release)}


def test_the_oldest_and_the_newest_release_have_a_lock():
    releases = [name.removeprefix("compat-").removesuffix(".lock") for name in COMPAT]
    oldest = ".".join(map(str, FIRST))
    [tested] = [version for name, version, _ in pins("dev.lock") if name == "distributed"]
    assert {oldest, tested} <= set(releases)
    assert len(releases) >= 5
    assert set(releases) <= set(known_sources().releases)  # what safeser replaces was reviewed


@pytest.mark.parametrize("lock", ["demo.lock", "dev.lock", "docs.lock", *COMPAT])
def test_a_lock_names_no_place(lock):
    text = (PROJECT / "requirements" / lock).read_text()
    assert not re.search(r"https?:|file:|--(extra-)?index|--find-links|trusted-host|@", text)
