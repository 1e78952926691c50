"""Analysts on a real cluster: what is approved works, all else is refused where it is submitted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.cluster

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"


@pytest.fixture(scope="module")
def analysts(cluster_under):
    with pytest.MonkeyPatch.context() as patch:
        # Scheduler, workers and analysts have the operator's library; see programs/mylib.
        patch.setenv("PYTHONPATH", os.pathsep.join([str(PROGRAMS), *_paths()]))
        with cluster_under((HERE / "approved.yaml").read_text()) as started:
            yield started


def _paths() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


@pytest.fixture(scope="module")
def bob(analysts):
    ended = analysts.run("bob", PROGRAMS / "analyst.py", analysts.address, timeout=300)
    assert ended.code == 0, f"{ended.err}\n{analysts.logs()}"
    return {**ended.answer, "stderr": ended.err}


@pytest.mark.parametrize(
    ("step", "result"),
    [
        ("submits", [3, 3.0, 6.0]),
        ("maps", [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9], [3.0, 6.0]]),
        ("futures_as_arguments", [5, 2.0, [2, 2]]),
        ("scatters", [45, 6]),
        ("arrays", [100.0, True, [40], True, True]),
        ("frames", [[72, 80, 38], 20, [19, 18, 17], ["A", "B", "C"], 180.5, True]),
        ("delayed", [2.5, 4.0]),
        ("bags", [[0, 2, 4, 6, 8, 10, 12, 14, 16, 18], 45]),
        ("annotates", [42, 6.0, 2]),
        ("low_level_graphs", [3, 7]),
        ("many", 89_700),
        ("fails", "division by zero"),
    ],
)
def test_what_is_approved_comes_out(bob, step, result):
    assert json.loads(json.dumps(bob[step])) == result, bob["stderr"][-3000:]


@pytest.mark.parametrize(
    ("name", "culprit", "line"),
    [
        ("lambda", "<lambda>, defined in analyst.py, line", 'allow: {"mylib:NAME": reference}'),
        ("main", "__main__:of_the_script, defined in", 'allow: {"mylib:of_the_script": reference}'),
        ("unlisted", "mylib.models:other cannot be", 'allow: {"mylib.models:other": reference}'),
        ("partial", "mylib.models:other cannot be", 'allow: {"mylib.models:other": reference}'),
        ("argument", "mylib.models:other cannot be", 'allow: {"mylib.models:other": reference}'),
        ("map", "mylib.models:other cannot be", 'allow: {"mylib.models:other": reference}'),
        ("delayed", "mylib.models:other cannot be", 'allow: {"mylib.models:other": reference}'),
        ("frame", "mylib.models:other cannot be", 'allow: {"mylib.models:other": reference}'),
        ("instance", "mylib.models:Thing cannot be", 'allow: {"mylib.models:Thing": class}'),
        ("class", "mylib.models:Thing cannot be", 'allow: {"mylib.models:Thing": class}'),
        ("method", "mylib.models:Thing", "allow: "),
        ("array", "<lambda>, defined in analyst.py, line", "allow: "),
        ("array-save", "numpy:save cannot be", "allow: "),
        ("system", "posix:system cannot be", "allow: "),
        ("eval", "builtins:eval cannot be", "allow: "),
        ("attrgetter", "operator:attrgetter: an attribute's name", "No profile"),
        ("methodcaller", "operator:methodcaller: a method's name", "No profile"),
        ("dask-method", "the method to_pickle is not one", "No profile"),
        ("query", "the method query is not one", "No profile"),
    ],
)
def test_what_is_not_is_refused_where_it_is_submitted(bob, name, culprit, line):
    kind, rule, text = bob["refusals"][name]
    assert (kind, rule) == ("PolicyDenied", "submission.approved")
    assert culprit in text
    assert line in text


def test_actors_and_annotations_that_can_be_called_are_refused(bob):
    assert bob["refusals"]["actor"][:2] == ["PolicyDenied", "submission.actors"]
    assert bob["refusals"]["annotation"][:2] == ["PolicyDenied", "submission.annotation"]
    assert bob["refusals"]["run"][:2] == ["PolicyDenied", "operation.not-granted"]


def test_a_name_that_a_task_asks_for_is_looked_at_on_the_worker(bob):
    assert "the attribute __class__ is not one" in bob["refusals"]["getattr"][2]


def test_a_patched_client_gets_nothing_run_anywhere(analysts, bob, tmp_path):
    assert bob
    mark = tmp_path / "mark"
    program = PROGRAMS / "hostile_analyst.py"
    ended = analysts.run("bob", program, analysts.address, str(mark), timeout=300)
    for name, said in ended.answer["attacks"].items():
        assert said[0] == "refused", (name, said)
    assert ended.answer["afterwards"] == [3, 3.0]
    assert not mark.exists()
