"""Tasks run where they would on stock Dask, and workers are looked up once for all of them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from distributed import Scheduler

from safeser.dask.addresses import look_up_no_names
from safeser.dask.restricted import restrict_together

ADDRESSES = [f"safeser://127.0.0.1:{port}" for port in range(1, 4)]


def applied(guarded: bool, by_type: Any, everywhere: Any) -> tuple[Any, Any, int]:
    async def made() -> Any:
        scheduler = Scheduler(dashboard_address="127.0.0.1:0", dashboard=False)
        scheduler.http_server.stop()
        Scheduler._instances.discard(scheduler)  # it never opens
        look_up_no_names(scheduler)
        looked_up = []
        look_up = scheduler.coerce_address
        scheduler.coerce_address = lambda each: looked_up.append(each) or look_up(each)
        if guarded:
            restrict_together(scheduler)
            restrict_together(scheduler)
        tasks = [scheduler.new_task(key, None, "released") for key in ("x", "y", "z")]
        told = scheduler._apply_annotations(
            tasks=iter(tasks), annotations_by_type=by_type, global_annotations=everywhere
        )
        states = [
            (
                each.annotations,
                each.worker_restrictions,
                each.host_restrictions,
                each.loose_restrictions,
                each.retries,
            )
            for each in tasks
        ]
        return told, states, len(looked_up)

    return asyncio.run(made())


@pytest.mark.parametrize(
    ("by_type", "everywhere"),
    [
        ({}, None),
        ({"retries": {"x": 3}}, {"anything": 1}),
        ({}, {"workers": ADDRESSES}),
        ({"workers": {"x": ADDRESSES, "y": ADDRESSES[0]}}, None),
        ({"workers": {"x": ADDRESSES}}, {"workers": "a b"}),
        ({"workers": {"x": ["a b", ADDRESSES[0]]}}, {"retries": 2}),
        ({"restrictions": {"y": {ADDRESSES[1]}}}, {"allow_other_workers": True}),
        ({"retries": {"z": 1}}, {"workers": lambda key: [ADDRESSES[key == "x"]]}),
        ({"workers": {"x": ()}}, {}),
    ],
)
def test_what_becomes_of_tasks_is_what_dask_makes_of_them(by_type, everywhere):
    assert applied(True, by_type, everywhere)[:2] == applied(False, by_type, everywhere)[:2]


def test_what_tasks_share_is_looked_up_once():
    for given in (
        ({}, {"workers": ADDRESSES}),
        ({"workers": dict.fromkeys("xyz", ADDRESSES)}, None),
    ):
        assert applied(False, *given)[2] == 9
        assert applied(True, *given)[2] == 3
