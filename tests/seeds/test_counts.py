"""No object is pickled or unpickled more often on safeser:// than on tcp://; sealed, less often.

The article on ``client.submit`` counted four serializations of one object, and then six.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Pickles and unpickles of one object by transport, case and role."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PROJECT))
        from verification.benchmarks.serialization.measuring import counted, running

        folder = tmp_path_factory.mktemp("counts")
        with running(folder) as clusters, ThreadPoolExecutor() as beside:
            # It waits most of the time, until each process has forgotten what was released.
            return dict(zip(clusters, beside.map(counted, clusters.values()), strict=True))


@pytest.mark.cluster
def test_no_process_pickles_or_unpickles_more_than_on_tcp(found):
    more = {
        (transport, case, role): tuple(a - b for a, b in zip(own, stock, strict=True))
        for transport in ("safeser", "safeser sealed")
        for case, roles in found[transport].items()
        for role, own in roles.items()
        for stock in [found["tcp"][case][role]]
        if any(a > b for a, b in zip(own, stock, strict=True))
    }
    assert more == {}


@pytest.mark.cluster
def test_a_scheduler_of_sealed_calls_opens_nothing(found):
    assert {roles["scheduler"] for roles in found["safeser sealed"].values()} == {(0, 0)}


@pytest.mark.cluster
@pytest.mark.parametrize("case", ["flat", "nested", "keyword", "partial", "wrapped twice"])
def test_a_client_pickles_an_argument_for_its_key_once_and_unpickles_nothing(found, case):
    assert found["tcp"][case]["client"] == (3, 2)
    assert found["safeser"][case]["client"] == (2, 0)
    # With the call of its reducer for the digest; a partial is pickled whole.
    assert found["safeser sealed"][case]["client"][1] == 0
