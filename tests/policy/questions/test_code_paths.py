"""Who can run code where, as chains of grants."""

from __future__ import annotations

from pathlib import Path

from safeser.policy import Policy
from safeser.policy.questions.code_paths import code_paths, runs_code_in

GROUPS = Path(__file__).parents[2] / "dask" / "groups" / "groups.yaml"


def paths(name: str) -> set[str]:
    return {" ".join(path) for path in code_paths(Policy.load(name))}


def test_chains_of_ready_policies() -> None:
    assert paths("strict") == {
        "scheduler nanny",
        "scheduler worker",
        "client scheduler",
        "client worker",
        "client scheduler nanny",
    }
    # A worker's tasks submit, so its key is code in the scheduler, and so in nannies.
    assert {"worker scheduler", "worker scheduler nanny"} <= paths("default")
    assert paths("stock-cluster") == set()
    assert "worker client" in paths("trusted")


def test_sealed_code_runs_on_workers_alone() -> None:
    assert paths("dask-cluster") == {"carol nanny", "carol worker"}
    runs = runs_code_in(Policy.load("dask-cluster"))
    assert runs["alice"] == frozenset()  # listed functions are no code
    assert runs["scheduler"] == frozenset()


def test_each_author_reaches_its_own_group() -> None:
    policy = Policy.load(GROUPS)
    for name, workers in runs_code_in(policy).items():
        assert workers <= policy.principals.keys() - {name}
    assert runs_code_in(policy)["carol"] >= {"worker-engineers"}
    assert "worker-engineers" not in runs_code_in(policy)["alice"]


def test_an_operation_that_runs_code_is_enough() -> None:
    policy = Policy.parse(
        "safeser: 1\nname: x\nrevision: 1\nprincipals: {a: {}, b: {}, c: {}}\ncontexts:\n"
        "- {name: one, sender: a, recipient: b, submission: code, operations: {grant: [files]}}\n"
        "- {name: two, sender: b, recipient: c, submission: code, operations: {grant: [run]}}\n"
    )
    assert code_paths(policy) == [("a", "b"), ("a", "b", "c"), ("b", "c")]
