"""The five clusters of a session that tests share, by name, and a client's place on each.

The one rule: each starts when a test first asks for it and ends with the session; a test leaves
nothing in it that a later one could see, and one of whose processes ended is replaced, and reported
with the name of the test that lost it.

========================  =======================================================================
cluster                   what it is, and who uses it
========================  =======================================================================
``default``               that of one person: notebooks, joblib, and keys of two who submit
``demo``                  what engineers, guests and attackers do: all of tests/dask/live
``dask-cluster``          engineers sign, others look: tests/dask/clusters/test_ready_policies.py
``sealed``                three authors, whose values are their own, and a lying scheduler
``confined``              analysts in sandboxes: tests/confinement
========================  =======================================================================

These files start their own, below tests/:

- to retire keys or end workers: dask/clusters/test_revocation.py, test_rotation.py
- to fill a disk: dask/clusters/test_full_disk.py
- under a policy that only they can work under: dask/clusters/test_limits.py (a megabyte),
  test_encryption.py, seeds/test_families_page.py, and in part
  dask/clusters/test_commands.py and test_ready_policies.py (nobody may register; trust in all)
- where how a cluster starts is what is tested: cli/test_up_cluster.py, dask/test_group_clusters.py,
  dask/clusters/test_deployers.py, test_listening.py, test_rehearse_page.py,
  dask/transport/test_connection_roles.py, deploy/test_pods.py, demo/test_whole_demo.py,
  packaging/test_examples.py, seeds/test_slow_submit_page.py, and in part
  dask/clusters/test_cluster.py (that of a program)
- to observe, learn and then enforce: dask/clusters/test_rehearsal.py
- with an audit hook or counters in each process: dask/test_golden.py, seeds/test_counts.py
- without safeser: dask/stock/test_live.py
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safeser.policy.ready import locate
from tests.processes import Cluster, Ended, Folder

__all__ = ["DEMO_PRINCIPALS", "SECRET", "Shared", "Visit"]

TESTS = Path(__file__).parent
PROGRAMS = TESTS / "dask" / "programs"

#: What only processes of cluster ``demo`` know: attackers ask for it.
SECRET = "safeser-live-secret-of-the-target"

_SERVERS = ("scheduler", "worker", "nanny")
DEMO_PRINCIPALS = (*_SERVERS, "alice", "bob", "carol")

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

#: In policy ``default``, what a second person submits, who hears the other word of each conflict of
#: keys than the first.
_DAVE = """  - name: dave-submits-code
    sender: dave
    recipient: scheduler
    submission: code
    serializers: [dask, msgpack, pickle, cloudpickle]
    deserializers: [dask, msgpack, pickle, cloudpickle]
    pickle: {profile: [data, numpy, pandas]}
    operations: {grant: [basic, diagnose, run, plugins, control, actors]}
    key_conflicts: {definition: warn, principal: refuse}
    values: [worker, client]
"""


def _changed(name: str, *changes: tuple[str, str]) -> str:
    """Return the text of a ready policy with *changes* made, each wherever it applies."""
    text = locate(name).read_text("utf-8")
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def _default(path: Path) -> Cluster:
    """One person's cluster, by the key of the client; and dave's, who hears the other words."""
    text = _changed(
        "default",
        ("  client: {}\n", "  client: {}\n  dave: {}\n"),
        ("authors: [client]", "authors: [client, dave]"),
        ("recipient: client\n", "recipient: [client, dave]\n"),
        (
            "sender: client\n    recipient: worker\n",
            "sender: [client, dave]\n    recipient: worker\n",
        ),
        ("values: [worker]  ", "values: [worker, dave]  "),
        ("  - name: client-submits-code\n", f"{_DAVE}  - name: client-submits-code\n"),
    )
    return _begun(Cluster(path, _written(path, text), (*_SERVERS, "client", "dave")))


def _demo(path: Path) -> Cluster:
    """Alice may submit, bob may not, and carol may all but open pickles."""
    text = _changed(
        "demo",
        ("  alice:", "  carol: {}\n  alice:"),
        ("values: [group:engineers, group:guests]", "values: [group:guests, carol]"),
        ("\nacknowledge:", f"{_CAROL}\nacknowledge:"),
    )
    return _begun(Cluster(path, _written(path, text), DEMO_PRINCIPALS, LIVE_SECRET=SECRET))


def _dask_cluster(path: Path) -> Cluster:
    """Engineers sign what they submit, others look; with the library of tests/dask/programs."""
    text = locate("dask-cluster").read_text("utf-8")
    principals = (*_SERVERS, "carol", "alice", "dashboard")
    return _begun(Cluster(path, _written(path, text), principals, **_importing(PROGRAMS)))


def _sealed(path: Path) -> Cluster:
    """Three authors of sealed calls, and a scheduler that lies about tasks of some keys."""
    here = TESTS / "dask" / "sealed"
    policy = _written(path, (here / "shared.yaml").read_text("utf-8"))
    lies = json.dumps([str(here / "lying.py")])
    people = (*_SERVERS, "alice", "carol", "erin", "vera")
    return _begun(Cluster(path, policy, people, DASK_DISTRIBUTED__SCHEDULER__PRELOAD=lies))


def _confined(path: Path) -> Folder:
    """Analysts have two workers in sandboxes, under the ready policy of that name."""
    from tests.confinement.site import Analysts

    return _begun(Analysts(path))


def _written(path: Path, text: str) -> str:
    (path / "policy.yaml").write_text(text, "utf-8")
    return str(path / "policy.yaml")


def _importing(folder: Path) -> dict[str, str]:
    paths = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _begun(made: Any) -> Any:
    try:
        made.begin()
    except BaseException:
        made.stop()
        raise
    return made


_STARTS: dict[str, Callable[[Path], Any]] = {
    "default": _default,
    "demo": _demo,
    "dask-cluster": _dask_cluster,
    "sealed": _sealed,
    "confined": _confined,
}


class Shared:
    """Those that this process has started so far.

    :param folder: makes a folder of that name.
    """

    def __init__(self, folder: Callable[[str], Path]) -> None:
        self._folder = folder
        self._running: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
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


#: How a program begins that is text.
_CONNECTED = """
import json, os, sys
import safeser
key = os.environ["KEY_PREFIX"].__add__
client = safeser.Client(sys.argv[1], deserializers=["dask", "msgpack"], timeout=30)
client.wait_for_workers(2, timeout=60)
"""


class Visit:
    """What a test does on one of these clusters, as a client of its principals.

    :param prefix: how keys and names of its programs begin, and of no other test's.
    """

    def __init__(self, cluster: Any, prefix: str) -> None:
        self.cluster = cluster
        self.prefix = prefix

    def run(self, principal: str, program: Path | str, *arguments: str, **options: Any) -> Ended:
        """Run a program, which is told the scheduler's address first.

        One that is text has a ``client``, and with ``key(name)`` a key of its own.
        """
        if isinstance(program, str):
            program = _CONNECTED + program
        return self.cluster.run(
            principal, program, self.cluster.address, *arguments, KEY_PREFIX=self.prefix, **options
        )

    def answer(self, principal: str, program: Path | str, *arguments: str, **options: Any) -> Any:
        """Return what the program printed last, as JSON."""
        ended = self.run(principal, program, *arguments, **options)
        assert ended.code == 0, f"{ended.out}\n{ended.err}\n{self.cluster.logs()}"
        return ended.answer
