"""One stock cluster and one on safeser for all live attacks of one test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dask.live.controls import Traps
from tests.dask.live.rig import Rig
from tests.dask.live.told import Told
from tests.processes import base_environment

#: Names of processes that hold no key.
STOCK = "stock"


@pytest.fixture(scope="package")
def rig(clusters) -> Rig:
    made = Rig(clusters["demo"])
    made.begin()
    return made


@pytest.fixture(scope="package")
def traps(rig: Rig) -> Iterator[Traps]:
    made = Traps(rig)
    yield made
    made.close()


def _told(
    rig: Rig, name: str, environments: dict[str, dict[str, str]], *arguments: str
) -> Iterator[dict[str, Told]]:
    """Yield processes that run *name*, each by its kind and in its environment."""
    made = {
        kind: Told(
            Path(__file__).with_name(f"{name}.py"),
            kind,
            *arguments,
            environment=environment,
            log=rig.path / f"{kind}-{name}.log",
        )
        for kind, environment in environments.items()
    }
    yield made
    for each in made.values():
        each.close()


@pytest.fixture(scope="package")
def victims(rig: Rig) -> Iterator[dict[str, Told]]:
    """Clients: on stock Dask, on safeser:// as alice, and guarded on tcp://."""
    own = rig.cluster.environment("alice")
    plain = base_environment()
    yield from _told(rig, "victim", {STOCK: plain, "safeser": own, "guarded": plain})


@pytest.fixture(scope="package")
def recruits(rig: Rig) -> Iterator[dict[str, Told]]:
    """Workers and nannies."""
    own = rig.cluster.environment("worker")
    folder = str(rig.path / "recruits")
    yield from _told(rig, "recruit", {STOCK: base_environment(), "safeser": own}, folder)
