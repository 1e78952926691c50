"""``trace_serialization`` shows how often an object is serialized, on all processes of a cluster.

The article on ``client.submit`` counts by a wrapper of its own, which sees one process.
"""

from __future__ import annotations

import json

import pytest

from tests.seeds.running import run

PROGRAM = """
import json, sys, numpy as np, safeser

class Model:
    def __init__(self, size):
        self.text = "x" * size

def use(model, number):
    return number

def main(policy):
    with safeser.Client(n_workers=2, threads_per_worker=1, policy=policy) as client:
        client.submit(use, 1, 2).result()
        with safeser.trace_serialization(client=client, scheduler=True, workers=True) as trace:
            client.submit(use, Model(100_000), 1).result()
            client.gather(client.map(np.ones, [1000, 2000]))
        print(trace)
        told = {
            "counts": [[*group, count.number] for group, count in trace.counts.items()],
            "missing": trace.missing,
            "places": [each.place for each in trace.records if "Model" in each.type],
            "types": sorted({each.type for each in trace.records}),
        }
        print(json.dumps(told))

if __name__ == "__main__":
    main(sys.argv[1])
"""


@pytest.mark.cluster
def test_all_processes_of_a_cluster_are_counted(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = run("-W", "ignore", "program.py", "default", cwd=tmp_path)
    *table, told = ended.out.splitlines()
    assert max(map(len, table)) <= 80
    assert "no counts of scheduler: it is part of this process, which counts it" in table
    found = json.loads(told)
    # A local cluster's scheduler is a thread of the client's process.
    assert found["missing"] == {"scheduler": "it is part of this process, which counts it"}
    assert found["places"]
    assert set(found["places"]) == {"program.py, line 15, in main"}
    assert "__main__.Model" in found["types"]
    counts = {}
    for process, action, _, number in found["counts"]:
        role = process.split()[0]
        counts[role, action] = counts.get((role, action), 0) + number
    assert counts["this", "hash"] >= 1
    assert counts["this", "serialize"] >= 2 + 3  # graphs and tasks
    assert counts["this", "deserialize"] >= 2 + 2  # graphs and arrays
    assert counts["worker", "deserialize"] >= 3
    assert counts["worker", "serialize"] >= 2
