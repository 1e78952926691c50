"""One stock cluster and one on safeser for all live attacks of one test process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from safeser.keys import Identity
from safeser.policy.ready import locate
from tests.dask.live.rig import SECRET, Rig, policy_text


@pytest.fixture(scope="package")
def rig(cluster_under) -> Iterator[Rig]:
    patch = pytest.MonkeyPatch()
    carol = Identity.generate("carol")
    text = policy_text(carol, locate("demo").read_text())
    with patch.context() as context:
        context.setenv("LIVE_SECRET", SECRET)
        with cluster_under(text) as cluster:
            made = Rig(cluster, carol)
            try:
                made.begin()
                yield made
            finally:
                made.end()
