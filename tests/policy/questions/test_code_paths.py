"""Who can run code where, as chains of grants."""

from __future__ import annotations

import itertools

import pytest

from safeser.policy import Policy
from safeser.policy.questions.code_paths import code_paths


def chains(policy: Policy) -> set[str]:
    """Return each chain between single principals that a class of them has."""
    return {
        " ".join(chain)
        for path in code_paths(policy)
        for chain in itertools.product(*path.steps)
        if len({*chain}) == len(chain)
    }


def written(*contexts: str, principals: str = "a: {}, b: {}, c: {}") -> Policy:
    each = "".join(f"- {{name: c{at}, {context}}}\n" for at, context in enumerate(contexts))
    head = f"safeser: 1\nname: x\nrevision: 1\nprincipals: {{{principals}}}\ncontexts:\n"
    return Policy.parse(head + each)


RUN = "sender: a, recipient: b, submission: code, operations: {grant: [files]}"


def test_an_operation_that_runs_code_is_enough() -> None:
    policy = written(RUN, RUN.replace("a,", "b,", 1).replace("recipient: b", "recipient: c"))
    assert chains(policy) == {"a b", "a b c", "b c"}
    (path,) = (each for each in code_paths(policy) if len(each.steps) == 3)
    assert path.contexts == (("c0",), ("c1",))


CODE = "submission: code, deserializers: [msgpack, pickle, cloudpickle]"


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        (f"sender: a, recipient: b, {CODE}", {"a b"}),
        # By any way on which a principal is proven, and from any host.
        (f"sender: a, recipient: b, transport: library, {CODE}", {"a b"}),
        (f"sender: a, recipient: b, same_host: true, {CODE}", {"a b"}),
        (f"sender: a, recipient: b, kinds: [data], {CODE}", {"a b"}),
        (f"sender: a, recipient: b, kinds: [admin], {CODE.partition(',')[0]}", set()),
        # What is written and not opened runs nowhere.
        ("sender: a, recipient: b, submission: code, "
         "serializers: [msgpack, pickle, cloudpickle]", set()),
        # Signed by its sender, and opened by the recipient itself.
        ("sender: a, recipient: b, submission: sealed, operations: {grant: [run]}".replace(
            "[run]", "[worker-run]"), {"a b"}),
        ("sender: a, recipient: b, submission: sealed, operations: {grant: [actors]}", set()),
        ("sender: a, recipient: b, deserializers: [msgpack, dask, pickle]", set()),
    ],
)  # fmt: skip
def test_what_is_code_and_what_is_not(context: str, expected: set[str]) -> None:
    assert chains(written(context)) == expected


def test_functions_that_a_scheduler_relays_are_code_without_any_task() -> None:
    """An author that may submit no graph can sign functions to be run on workers."""
    signed = "submission: sealed, operations: {grant: [worker-run]}"
    policy = written(
        f"sender: a, recipient: b, {signed}",
        "sender: b, recipient: c, authors: [a], submission: sealed,"
        " operations: {grant: [worker-run, compute-task]}",
    )
    assert "a c" in chains(policy)
    assert "b c" not in chains(policy)
    other = written(
        f"sender: a, recipient: b, {signed}",
        "sender: b, recipient: c, submission: sealed, operations: {grant: [compute-task]}",
    )
    assert "a c" not in chains(other)


def test_members_of_one_group_can_run_code_as_each_other() -> None:
    policy = written(
        f"sender: 'group:g', recipient: 'group:g', {CODE}",
        principals="a: {groups: [g]}, b: {groups: [g]}, c: {groups: [g]}, d: {}",
    )
    assert chains(policy) == {"a b", "a c", "b a", "b c", "c a", "c b"}
    assert len(code_paths(policy)) == 1
