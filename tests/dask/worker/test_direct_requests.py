"""Values that come to a worker from elsewhere than its scheduler, without sockets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from distributed.worker import Worker

from safeser.operations import Server
from tests.dask.patched import Peer, asked, serve

POLICY = """
safeser: 1
name: brought
revision: 1
principals: {scheduler: {}, worker: {}, alice: {}, carol: {}}
contexts:
  - name: down
    sender: scheduler
    recipient: worker
  - name: bring-with-code
    sender: alice
    recipient: worker
    submission: code
    serializers: [dask, msgpack, pickle, cloudpickle]
    deserializers: [dask, msgpack, pickle, cloudpickle]
    operations: {grant: [update_data]}
  - name: bring
    sender: carol
    recipient: worker
    deserializers: [dask, msgpack]
    operations: {grant: [update_data]}
"""


class Held(Worker):
    def __init__(self) -> None:
        self.handlers = {
            "update_data": self.update_data,
            "gather": self.gather,
            "free_keys": self.handle_free_keys,
        }

    def __del__(self) -> None: ...

    def update_data(self, data: Any, stimulus_id: Any = None) -> str:
        return "stored"

    def gather(self, who_has: Any) -> str:
        return "stored"

    def handle_free_keys(self, keys: Any, stimulus_id: Any) -> str:
        return "stored"


def held() -> Held:
    worker = Held()
    serve(worker, Server.WORKER, SimpleNamespace(), is_scheduler=is_scheduler)
    return worker


def is_scheduler(principal: str) -> bool:
    return principal == "scheduler"


#: As policies were that let workers ask each other for whatever is asked of workers.
EXCHANGE = (
    POLICY
    + """  - name: workers-exchange
    sender: worker
    recipient: worker
    deserializers: [dask, msgpack]
    operations: {grant: [basic, cluster]}
"""
)


@pytest.mark.parametrize(
    ("name", "request_"),
    [
        ("update_data", {"data": {"k": 1}}),
        ("gather", {"who_has": {"k": ["safeser://127.0.0.1:1"]}}),
        ("free_keys", {"keys": ["k"], "stimulus_id": "s"}),
    ],
)
@pytest.mark.parametrize(
    ("peer", "stored"),
    [("scheduler", True), ("alice", True), ("carol", False), ("worker", False)],
)
def test_its_scheduler_changes_a_workers_values_and_whom_code_is_taken_from(
    doors, peer, stored, name, request_
):
    with_code = "{grant: [update_data, gather, free_keys]}"
    policy = EXCHANGE.replace("{grant: [update_data]}", with_code)
    near, far = doors.links(peer, "worker", policy)
    del near
    worker = held()
    said = asked(worker, worker.handlers, Peer(far), name, **request_)
    if stored:
        assert said == "stored"
    else:
        assert said["exception"].rule == "key.direct"
        assert far.audit.rules == ["key.direct"]
    assert asked(worker, worker.handlers, Peer(), name, **request_) == "stored"


SEALED = """
safeser: 1
name: sealed
revision: 1
principals: {scheduler: {}, impostor: {}, worker: {}, alice: {}, bob: {}, eve: {}, dora: {}}
contexts:
  - name: tasks
    sender: scheduler
    recipient: worker
    authors: [alice, dora]
    submission: sealed
    operations: {grant: [compute-task]}
  - name: other-tasks
    sender: impostor
    recipient: worker
    authors: [eve]
    submission: sealed
    operations: {grant: [compute-task]}
  - name: submit
    sender: [alice, bob, eve]
    recipient: [scheduler, impostor]
    submission: sealed
    operations: {grant: [update-graph]}
  - name: look
    sender: dora
    recipient: scheduler
    operations: {grant: [look]}
  - name: values
    sender: [alice, bob, eve, dora]
    recipient: worker
    submission: sealed
    operations: {grant: [update_data, actors]}
"""


BY_HOST = POLICY.replace("name: bring-with-code\n", "name: bring-with-code\n    same_host: true\n")
BY_HOST += """  - name: bring-from-elsewhere
    sender: alice
    recipient: worker
    deserializers: [dask, msgpack]
    operations: {grant: [update_data]}
"""


@pytest.mark.parametrize(
    ("policy", "peer", "same_host", "stored"),
    [
        # Eve's tasks would run here for another scheduler, bob's for none, and dora submits none.
        *((SEALED, peer, True, peer == "alice") for peer in ("alice", "bob", "eve", "dora")),
        # Data is brought by the hop on which it comes.
        (BY_HOST, "alice", True, True),
        (BY_HOST, "alice", False, False),
    ],
)
def test_whose_tasks_would_run_here_changes_a_workers_values(
    doors, policy, peer, same_host, stored
):
    _, far = doors.links(peer, "worker", policy)
    far.transport, far.same_host = "safeser", same_host
    worker = held()
    said = asked(worker, worker.handlers, Peer(far), "update_data", data={"k": 1})
    assert (said == "stored") is stored
    assert stored or said["exception"].rule == "key.direct"
