"""Real processes decide workloads as recorded; ``python -m verification.golden`` runs all 84.

The scheduler opens nothing of them, and imports none of their modules.
"""

from __future__ import annotations

import pytest

from verification.golden.__main__ import golden, run
from verification.golden.traces import Trace, differences

#: One workload for each way in which a value, a task or code travels.
CHOSEN = (
    *("submit_lambda", "scatter_pandas", "numpy_result", "da_sum", "dd_shuffle_p2p", "actors"),
    *("run", "register_worker_plugin", "task_error_custom_cls", "run_on_scheduler"),
    *("run_nanny", "register_nanny_plugin", "upload_file", "futures_as_args", "partial_path"),
    *("delayed_calls", "annotations_resources", "da_rechunk_p2p", "dd_merge_p2p"),
)


@pytest.mark.cluster
def test_workloads_decide_what_was_recorded(tmp_path):
    seen, did, said = run("dask-cluster", tmp_path, CHOSEN)
    assert list(differences(Trace.load(golden("dask-cluster")), seen)) == [], said
    assert set(seen.results) == set(CHOSEN)
    assert did == ()
