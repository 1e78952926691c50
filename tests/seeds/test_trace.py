"""``trace_serialization`` shows how often an object is serialized, on all processes of a cluster.

The article on ``client.submit`` counts by a wrapper of its own, which sees one process.
"""

from __future__ import annotations

import pytest

PROGRAM = """
import numpy as np

class Model:
    def __init__(self, size):
        self.text = "x" * size

def use(model, number):
    return number

def main():
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

main()
client.close()
"""


@pytest.mark.cluster
def test_all_processes_of_a_cluster_are_counted(visit):
    ended = visit("default").run("client", PROGRAM)
    found = ended.answer
    assert max(map(len, ended.out.splitlines()[:-1])) <= 80
    assert found["missing"] == {}
    assert found["places"]
    assert {place.rpartition(", ")[2] for place in found["places"]} == {"in main"}
    assert "__main__.Model" in found["types"]
    counts = {}
    for process, action, _, number in found["counts"]:
        role = process.split()[0]
        counts[role, action] = counts.get((role, action), 0) + number
    assert counts["this", "hash"] >= 1
    assert counts["this", "serialize"] >= 2 + 3  # graphs and tasks
    assert counts["this", "deserialize"] >= 2  # arrays
    assert counts["scheduler", "deserialize"] >= 2  # graphs
    assert counts["worker", "deserialize"] >= 3
    assert counts["worker", "serialize"] >= 2
