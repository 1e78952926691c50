"""One author submits under the same keys from a second process, between real processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dask.sealed.conftest import POLICY

pytestmark = pytest.mark.cluster

PROGRAM = Path(__file__).parent / "twice.py"


@pytest.fixture(scope="module")
def seen(cluster_under):
    with cluster_under(POLICY, nannies=0) as cluster:
        found = {}
        for seed, which in enumerate(("first", "same", "other"), 1):
            ended = cluster.run(
                "alice", PROGRAM, cluster.address, which, timeout=180, PYTHONHASHSEED=str(seed)
            )
            assert ended.code == 0, f"{ended.out}\n{ended.err}\n{cluster.logs()}"
            found[which] = ended.answer
        yield found


def test_the_same_work_passes_without_a_word(seen):
    assert seen["first"]["answers"]["closure"] == 10
    assert seen["same"] == {"answers": seen["first"]["answers"], "told": []}


@pytest.mark.parametrize("key", ["closure", "constants", "set"])
def test_another_definition_is_refused_and_named(seen, key):
    kind, rule, text = seen["other"]["answers"][key]
    assert (kind, rule) == ("PolicyDenied", "key.definition")
    assert f"key {key!r}, submitted by 'alice', was first submitted by 'alice'" in text
    assert "Name another key" in text


def test_what_depends_on_it_is_refused_too(seen):
    assert seen["other"]["answers"]["input"][0] == "PolicyDenied"


def test_what_cannot_be_compared_is_a_warning_and_the_first_result(seen):
    assert seen["other"]["answers"]["iterator"] == seen["first"]["answers"]["iterator"]
    [told] = seen["other"]["told"]
    assert "key 'iterator'" in told
    assert "with a definition that could not be compared. Its result is used." in told


def test_collections_that_are_the_same_are_shared_beside_what_is_refused(seen):
    for name in ("xarray", "array"):
        assert seen["other"]["answers"][name] == seen["first"]["answers"][name]
