"""The clusters of a session that tests share, by name.

The one rule: each starts when a test first asks for it and ends with the session; a test leaves
nothing in it that a later one could see, and one of whose processes ended is replaced, and reported
with the name of the test that lost it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from safeser.policy.ready import locate

if TYPE_CHECKING:
    from tests.conftest import Cluster

__all__ = ["DEMO_PRINCIPALS", "SECRET", "Shared"]

#: What only processes of cluster ``demo`` know: attackers ask for it.
SECRET = "safeser-live-secret-of-the-target"

DEMO_PRINCIPALS = ("scheduler", "worker", "nanny", "alice", "bob", "carol")

#: In policy ``demo``, carol: she has authority over everything, and no pickle at all.
_CAROL = """
  - name: carol-operates
    sender: carol
    recipient: [scheduler, worker, nanny]
    submission: code
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations:
      grant: [basic, cluster, run, plugins, control, files, diagnose, actors, benchmark, debug]
  - name: carol-reads
    sender: [scheduler, worker, nanny]
    recipient: carol
    kinds: [admin, data]
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations: {grant: [basic]}
"""


def _demo(path: Path) -> Cluster:
    """Alice may submit, bob may not, and carol may all but open pickles."""
    text = locate("demo").read_text("utf-8")
    values = "values: [group:engineers, group:guests]"
    assert values in text
    text = text.replace("  alice:", "  carol: {}\n  alice:", 1)
    text = text.replace(values, "values: [group:guests, carol]")
    text = text.replace("\nacknowledge:", f"{_CAROL}\nacknowledge:", 1)
    return _begun(path, text, DEMO_PRINCIPALS, LIVE_SECRET=SECRET)


def _dask_cluster(path: Path) -> Cluster:
    """Engineers sign what they submit, others look; with the library of tests/dask/programs."""
    programs = str(Path(__file__).parent / "dask" / "programs")
    paths = [programs, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return _begun(
        path,
        locate("dask-cluster").read_text("utf-8"),
        ("scheduler", "worker", "nanny", "carol", "alice", "dashboard"),
        PYTHONPATH=os.pathsep.join(filter(None, paths)),
    )


def _begun(path: Path, text: str, principals: tuple[str, ...], **environment: str) -> Cluster:
    from tests.conftest import Cluster

    policy = path / "policy.yaml"
    policy.write_text(text)
    made = Cluster(path, str(policy), principals, **environment)
    try:
        made.begin()
    except BaseException:
        made.stop()
        raise
    return made


_STARTS: dict[str, Callable[[Path], Cluster]] = {"demo": _demo, "dask-cluster": _dask_cluster}


class Shared:
    """Those that this process has started so far.

    :param folder: makes a folder of that name.
    """

    def __init__(self, folder: Callable[[str], Path]) -> None:
        self._folder = folder
        self._running: dict[str, Cluster] = {}

    def __getitem__(self, name: str) -> Cluster:
        if name not in self._running:
            self._running[name] = _STARTS[name](self._folder(name))
        return self._running[name]

    def lost(self) -> list[str]:
        """Stop each cluster of which a process has ended; return which these were."""
        found = {name: made.ended() for name, made in self._running.items() if made.ended()}
        for name in found:
            self._running.pop(name).stop()
        return [f"{' and '.join(ended)} of cluster {name}" for name, ended in found.items()]

    def stop(self) -> None:
        while self._running:
            self._running.popitem()[1].stop()
