"""Dask's fine performance metrics of serialization exist on safeser:// as they do on tcp://.

https://distributed.dask.org/en/stable/fine-performance-metrics.html
"""

from __future__ import annotations

import pytest

from tests.seeds.running import run

PROGRAM = """
import json, numpy as np, safeser

def measured(dask_worker):
    return [[str(part) for part in key] for key in dask_worker.digests_total if type(key) is tuple]

def main():
    with safeser.Client(n_workers=2, threads_per_worker=1) as client:
        one, other = client.scheduler_info()["workers"]
        made = client.submit(np.zeros, 100_000, workers=[one])
        client.submit(np.sum, made, workers=[other]).result()
        made.result()
        found = client.run(measured)
        print(json.dumps([found[one], found[other]]))

if __name__ == "__main__":
    main()
"""


@pytest.mark.cluster
def test_serialize_and_deserialize_are_metered(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = run("program.py", cwd=tmp_path)
    one, other = ended.answer
    assert ["get-data", "serialize", "seconds"] in one
    assert ["gather-dep", "deserialize", "seconds"] in other
