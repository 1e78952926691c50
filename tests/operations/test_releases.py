"""Rows and fields that not all releases of distributed have."""

from __future__ import annotations

from contextlib import nullcontext
from importlib.metadata import PackageNotFoundError

import pytest

from safeser.gate.values import Kind
from safeser.operations import (
    FIRST,
    GROUPS,
    NAMES,
    Channel,
    Encoding,
    Operation,
    Release,
    Server,
    installed,
    operations_in,
    release,
)
from safeser.operations import rows as of_release
from safeser.operations.releases import NEWEST

BEFORE, AFTER = release("2026.3.0"), release("2026.6.0")


def rows(given: Release) -> dict[str, Operation]:
    return {row.name: row for row in operations_in(given) if row.channel is Channel.RPC}


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("2026.8.0", (2026, 8, 0)),
        ("2026.8.0+5.gabc", (2026, 8, 0)),
        ("2026.1", (2026, 1)),
        *((text, None) for text in ("", "v1", "unknown")),
    ],
)
def test_a_release_is_its_numbers(text: str, numbers: Release | None) -> None:
    with nullcontext() if numbers else pytest.raises(ValueError, match="no release"):
        assert release(text) == numbers


@pytest.mark.parametrize("said", [None, "unknown"])
def test_without_a_release_the_newest_rows_count(
    monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    def version(_: str) -> str:
        if said is None:
            raise PackageNotFoundError
        return said

    monkeypatch.setattr(of_release, "version", version)
    assert installed() == NEWEST
    assert operations_in(NEWEST) == operations_in(release("2026.8.0"))


def test_each_release_has_its_own_rows_and_fields() -> None:
    before, after = rows(BEFORE), rows(AFTER)
    assert before.keys() - after.keys() == {"publish_wait_flush"}
    assert after.keys() - before.keys() == {"get_task_stream_index"}
    assert "start_index" in after["get_task_stream"].takes
    assert "start_index" not in before["get_task_stream"].takes
    assert dict(before["publish_get"].reply) == {"data": Encoding.MARKED}
    assert dict(after["publish_get"].reply) == {"[].data": Encoding.MARKED}
    old = {"op": "publish_put", "name": "n", "keys": ["k"], "data": 1, "override": False}
    assert before["publish_put"].fits({**old, "client": "c"})
    assert not after["publish_put"].fits({**old, "client": "c"})


def test_no_release_has_two_rows_for_one_place() -> None:
    for given in (FIRST, BEFORE, AFTER, NEWEST):
        places = [(row.server, row.channel, row.name) for row in operations_in(given)]
        assert len(set(places)) == len(places)


def test_policies_can_grant_operations_of_every_release() -> None:
    for given in (FIRST, BEFORE, AFTER):
        assert {row.name for row in operations_in(given)} <= NAMES
        assert all(row.name in GROUPS[row.group] for row in operations_in(given))
    assert {"publish_wait_flush", "get_task_stream_index"} <= NAMES


def test_a_row_says_in_which_releases_it_is() -> None:
    row = Operation(Server.WORKER, Channel.RPC, "x", Kind.ADMIN, "basic", since="2.0", until="3.0")
    assert [row.is_in(given) for given in ((1, 9), (2, 0), (2, 9), (3, 0))] == [
        False,
        True,
        True,
        False,
    ]
