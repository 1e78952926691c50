"""A process that confines itself as it is told, probes itself, and prints what came of it as JSON.

``parts`` are the walls that are put up: a test leaves one out and sees which probe notices.
"""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

from safeser.confinement import Own, launch, probe
from safeser.policy import Confined


def main() -> None:
    told = json.loads(sys.argv[1])
    demand = told["demand"]
    confined = Confined(**{**demand, "ports": tuple(range(a, b) for a, b in demand["ports"])})
    paths = {name: Path(path) for name, path in told["own"].items()}
    own = Own(**paths, principals=("worker", "alice"))
    rules = launch.Rules(**told["rules"])
    landlock, seccomp = launch._libraries()
    if told["thread"]:
        threading.Thread(target=threading.Event().wait, daemon=True).start()
    if "witness" in told["parts"]:
        launch._start_witness()
    calls = launch._filter(seccomp, rules)
    if "landlock" in told["parts"]:
        launch._restrict_files(landlock, rules)
    if "seccomp" in told["parts"]:
        calls.load()
    outcomes = probe(confined, own)
    print(json.dumps({each.probe: [each.state, each.found, each.fix] for each in outcomes}))


if __name__ == "__main__":
    main()
