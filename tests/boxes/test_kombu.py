"""Celery with a box: a real Redis, a real worker with a pool of processes, and who writes to Redis.

After each attack a client waits for a task that was queued behind it: the worker took both, in
order, so what the attack did is done by then.
"""

from __future__ import annotations

import bz2
import datetime
import gc
import importlib
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import celery
import kombu
import numpy as np
import pytest
import redis

import safeser
from safeser.boxes.kombu import _name_task, register
from safeser.errors import ConfigError, EnvelopeError
from safeser.families.errors.failures import RemoteError
from safeser.identity import Identity
from tests.boxes.folders import write_keys
from tests.conftest import Witness
from tests.processes import PATIENCE, measured
from tests.redis_server import needs_redis, redis_server
from tests.refusal import refusal

TASKS = "application/x-safeser-shop-tasks"
ABOUT = "shop tasks"


class Evil:
    def __reduce__(self):
        return os.system, (f"echo EVIL >> {os.environ['WORLD']}/ran",)


@dataclass
class World:
    folder: Path
    socket: str
    app: celery.Celery
    once: int = 0

    def box(self, principal: str, folder: str = "keys", **options: Any) -> safeser.Box:
        return safeser.Box.at(self.folder / folder, principal, audit=Witness(), **options)

    def body(
        self, name: str, task_id: str, *args: Any, **more: Any
    ) -> tuple[dict[str, Any], tuple[Any, Any, dict[str, Any]]]:
        """Return headers and body of a task as Celery and the adapter make them, with *more*."""
        headers, _, body, _ = self.app.amqp.as_task_v2(task_id, name, args, {})
        headers = {**headers, **more}
        _name_task(body, headers)
        return headers, body

    def captured(self, task_id: str, **more: Any) -> tuple[dict[str, Any], bytes]:
        """Return headers, and a body that web sealed, which anybody can copy who reads Redis."""
        headers, body = self.body("remove", task_id, "captured")
        data = self.box("web").seal(body, to="worker", about=ABOUT, ttl=60)
        return {**headers, **more}, data

    def push(self, headers: dict[str, Any], data: bytes, content_type: str = TASKS) -> None:
        """Put a message into the queue, as those can who can write to Redis."""
        with kombu.Connection(self.app.conf.broker_url) as connection:
            producer = connection.Producer()
            encoding = {"application/text": "utf-8", "application/data": "bz2"}
            producer.publish(
                data, headers=headers, routing_key="celery", content_type=content_type,
                content_encoding=encoding.get(content_type, "binary"),
                correlation_id=headers.get("id"), reply_to="nobody",
            )  # fmt: skip

    def ran(self) -> list[str]:
        """Return what tasks did, once the worker has taken what is queued now."""
        text = f"after {os.urandom(4).hex()}"
        self.app.send_task("note", (text,)).get(timeout=PATIENCE)
        lines = (self.folder / "ran").read_text().splitlines()
        assert lines.pop() == f"{text} of web"
        (self.folder / "ran").write_text("")
        return lines

    def stored(self, task_id: Any) -> bool:
        """Return whether Redis has a result of that task."""
        with redis.Redis(unix_socket_path=self.socket) as server:
            return bool(server.exists(f"celery-task-meta-{task_id}"))

    def said(self) -> str:
        return (self.folder / "worker.log").read_text()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    names = ("web", "guest", "stranger", "worker")
    identities = {name: Identity.generate(name) for name in names}
    write_keys(folder / "keys", *identities.values())
    # One who made a key for the name of another, and has the worker's public one.
    write_keys(folder / "forged", Identity.generate("web"), identities["worker"])
    for name in ("web", "worker"):
        (folder / name).mkdir(mode=0o700)
        safeser.audit.AuditKey.new().save(folder / name / "audit.key")
    # A new store refuses what was sealed before it, and for some seconds more.
    safeser.Once(folder / "once", clock=lambda: 1_600_000_000.0)
    with redis_server() as socket, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WORLD", str(folder))
        patch.setenv("REDIS", socket)
        worker = start(folder, socket)
        shop = importlib.import_module("tests.boxes.shop")
        try:
            app = shop.made("web")
            yield World(folder, socket, app)
            app.close()
            gc.collect()  # results tell Redis that nothing waits for them
        finally:
            worker.terminate()
            worker.wait(PATIENCE)


def start(folder, socket):
    """Start a worker with a pool of one process."""
    command = [sys.executable, "-m", "celery", "-A", "tests.boxes.shop", "worker"]
    command += ["--pool", "prefork", "--concurrency", "1", "--loglevel", "info"]
    command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    environment = {**os.environ, "WORLD": str(folder), "REDIS": socket, "PRINCIPAL": "worker"}
    with (folder / "worker.log").open("w") as log:
        return subprocess.Popen(
            command,
            env=measured(environment),
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[2],
        )


pytestmark = [needs_redis, pytest.mark.slow]


def test_arrays_pass_and_come_back(world):
    # With a store of what ran, which Celery's second decoding does not trip.
    array = np.arange(1000.0)
    assert world.app.send_task("total", (array,)).get(timeout=PATIENCE) == array.sum()
    assert world.ran() == []


def test_errors_retries_and_canvases(world):
    with pytest.raises(Exception, match="by zero") as caught:
        world.app.send_task("fail").get(timeout=PATIENCE)
    assert type(caught.value) is ZeroDivisionError
    assert world.app.send_task("again").get(timeout=PATIENCE) == 1
    signature = world.app.signature
    chain = signature("note", ("first",)) | signature("note", ("then",), immutable=True)
    chain.apply_async().get(timeout=PATIENCE)
    # What a task calls is sent by its worker.
    assert world.ran() == ["first of web", "then of worker"]
    group = celery.group(signature("total", (np.arange(n),)) for n in (2, 3))
    assert group.apply_async().get(timeout=PATIENCE) == [1, 3]


def forged(world):
    headers, body = world.body("remove", "1", "x")
    return headers, world.box("web", "forged").seal(body, to="worker", about=ABOUT, ttl=60), TASKS


def stranger(world):
    headers, body = world.body("remove", "2", "x")
    box = world.box("stranger", policy=world.folder / "keys/loose.yaml")
    return headers, box.seal(body, to="worker", about=ABOUT, ttl=60), TASKS


def pickle_of_a_guest(world):
    headers, body = world.body("remove", "3", ALLOWED)
    box = world.box("guest", policy=world.folder / "keys/loose.yaml")
    return headers, box.seal(body, to="worker", about=ABOUT, ttl=60), TASKS


def stock_pickle(world):
    return world.body("remove", "4")[0], pickle.dumps(((Evil(),), {}, {})), TASKS


def stock_pickle_as_such(world):
    headers, _ = world.body("remove", "5")
    return headers, pickle.dumps(((Evil(),), {}, {})), "application/x-python-serialize"


def stock_json(world):
    headers, _ = world.body("remove", "6")
    return headers, b'[["x"], {}, {}]', "application/json"


def no_serializer(world):
    headers, _ = world.body("remove", "7")
    return {**headers, "safeser": ["remove", "7"]}, "abc", "application/text"


def another_task(world):
    headers, body = world.body("note", "8", "harmless")
    data = world.box("web").seal(body, to="worker", about=ABOUT, ttl=60)
    return {**headers, "task": "remove"}, data, TASKS


def another_id(world):
    headers, body = world.body("remove", "9", "x")
    data = world.box("web").seal(body, to="worker", about=ABOUT, ttl=60)
    return {**headers, "id": "10"}, data, TASKS


def no_name(world):
    headers, body = world.body("remove", "11", "x")
    del body[2]["safeser"]
    data = world.box("web").seal(body, to="worker", about=ABOUT, ttl=60)
    return {**headers, "safeser": ["remove", "11"]}, data, TASKS


def a_call_of_this_process(world):
    headers, body = world.body("note", "16", "x")
    body[2]["is_eager"] = True
    data = world.box("web").seal(body, to="worker", about=ABOUT, ttl=60)
    return {**headers, "task": "remove", "is_eager": True}, data, TASKS


def callbacks_in_headers(world):
    headers, body = world.body("fail", "17")
    for name in ("callbacks", "errbacks", "chain", "chord"):
        del body[2][name]
    data = world.box("web").seal(body, to="worker", about=ABOUT, ttl=60)
    calls = [world.app.signature("remove", ("x",), immutable=True)]
    return {**headers, "errbacks": calls, "callbacks": calls, "chain": calls}, data, TASKS


def a_result(world):
    headers, body = world.body("remove", "12", "x")
    data = world.box("web").seal(body, to="worker", about="shop results", ttl=60)
    return headers, data, TASKS


def expired(world):
    headers, body = world.body("remove", "13", "x")
    box = world.box("web")
    box._keys.clock = lambda: 1_700_000_000.0
    return headers, box.seal(body, to="worker", about=ABOUT, ttl=1 << 30), TASKS


def protocol_1(world):
    body = {"task": "remove", "id": "14", "args": ["x"], "kwargs": {}}
    return {}, world.box("web").seal(body, to="worker", about=ABOUT, ttl=60), TASKS


def hybrid(world):
    headers, _ = world.body("remove", "15")
    body = {"task": "remove", "id": "15", "args": ["x"], "kwargs": {}}
    return headers, world.box("web").seal(body, to="worker", about=ABOUT, ttl=60), TASKS


def unknown_task(world):
    return world.body("nothing.here", "30")[0], b"garbage", TASKS


def unknown_task_with_a_seal(world):
    return *world.captured("31", task="nothing.here"), TASKS


def revoked_for_another(world):
    return *world.captured("32", id="33", expires="2020-01-01T00:00:00+00:00"), TASKS


def expired_by_its_sender(world):
    headers, body = world.body("remove", "34", "x", expires="2020-01-01T00:00:00+00:00")
    return headers, world.box("web").seal(body, to="worker", about=ABOUT, ttl=60), TASKS


def compressed(world):
    headers, _ = world.body("remove", "35")
    return {**headers, "compression": "bzip2"}, bz2.compress(bytes(1 << 20)), TASKS


def compressed_by_its_encoding(world):
    return world.body("remove", "36")[0], bz2.compress(bytes(1 << 20)), "application/data"


def compressed_and_no_body(world):
    headers, _ = world.body("remove", "37")
    return {**headers, "compression": ["x"]}, b"", TASKS


def task_is_a_list(world):
    return {**world.body("remove", "38")[0], "task": ["remove"]}, b"junk", TASKS


def task_is_a_list_with_a_seal(world):
    return *world.captured("39", task=["remove"]), TASKS


def id_is_a_list(world):
    return *world.captured("40", id=["x"]), TASKS


def encoding_is_unknown(world):
    return world.body("remove", "41")[0], b"junk", "no type at all"


def of_a_guest(**more):
    """Return an attack of one in the roster: these headers are sealed."""

    def attack(world):
        headers, body = world.body("remove", "42", "x", **more)
        return headers, world.box("guest").seal(body, to="worker", about=ABOUT, ttl=60), TASKS

    attack.__name__ = f"of_a_guest_{'_'.join(more)}_{more!r}"
    return attack


def a_chord(world):
    headers, body = world.body("total", "45", np.arange(2), group="parts")
    call = world.app.signature("remove", ("x",), immutable=True)
    body[2]["chord"] = {**call, "chord_size": 1}
    data = world.box("web").seal(body, to="worker", about=ABOUT, ttl=60)
    return {**headers, "chord": {**call, "chord_size": 1}}, data, TASKS


ATTACKS = {
    forged: "key.unlisted",
    stranger: "context.none",
    pickle_of_a_guest: "context.family",
    stock_pickle: "envelope.",
    stock_pickle_as_such: "box.task",
    stock_json: "box.task",
    no_serializer: "box.task",
    another_task: "box.task",
    another_id: "box.task",
    no_name: "box.task",
    a_call_of_this_process: "box.task",
    callbacks_in_headers: "ZeroDivisionError",
    a_result: "box.about",
    expired: "box.expired",
    protocol_1: "box.task",
    hybrid: "box.task",
    unknown_task: "envelope.",
    unknown_task_with_a_seal: "box.task",
    revoked_for_another: "box.task",
    expired_by_its_sender: "box.expired",
    compressed: "is compressed",
    compressed_by_its_encoding: "box.task",
    compressed_and_no_body: "is refused",
    task_is_a_list: "envelope.",
    task_is_a_list_with_a_seal: "box.task",
    id_is_a_list: "box.task",
    encoding_is_unknown: "box.task",
    a_chord: "total[45] succeeded",
    of_a_guest(timelimit=7): "box.task",
    of_a_guest(timelimit=["x", None]): "box.task",
    of_a_guest(timelimit=[1]): "box.task",
    of_a_guest(timelimit=[10**400, None]): "box.task",
    of_a_guest(retries="x"): "box.task",
    of_a_guest(expires=7): "box.task",
    of_a_guest(id=7): "box.task",
    of_a_guest(id=np.arange(2).tolist()): "box.task",
    of_a_guest(eta="x"): "invalid ETA",
}
ALLOWED = datetime.date(2026, 11, 29)


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_of_an_attack_runs(world, attack):
    begun = len(world.said())
    headers, *rest = attack(world)
    world.push(headers, *rest)
    assert world.ran() == []
    assert ATTACKS[attack] in world.said()[begun:]
    if attack not in (callbacks_in_headers, a_chord):  # of which the sealed task itself ran
        assert "id" not in headers or not world.stored(headers["id"])


def test_no_group_is_kept_in_redis(world):
    group = celery.result.GroupResult("team", [world.app.AsyncResult("1")], app=world.app)
    with refusal(ConfigError, "box.celery"):
        group.save()
    with refusal(ConfigError, "box.celery"):
        celery.result.GroupResult.restore("team", app=world.app)


def test_a_result_stays_that_of_its_task(world):
    result = world.app.send_task("total", (np.arange(3),))
    assert result.get(timeout=PATIENCE) == 3
    world.push(world.body("nothing.here", result.id)[0], b"garbage")
    world.push(*world.captured("43", id=result.id, expires="2020-01-01T00:00:00+00:00"))
    assert world.ran() == []
    world.app.backend._cache.clear()
    assert world.app.AsyncResult(result.id).get(timeout=PATIENCE) == 3


def test_headers_count_as_they_were_sealed(world):
    past = "2020-01-01T00:00:00+00:00"
    more = {"expires": past, "timelimit": [1e-7, None], "eta": "9999-01-01T00:00:00", "shadow": [1]}
    world.push(*world.captured("44", **more, ignore_result=True, is_eager=True))
    assert world.ran() == ["REMOVED captured"]
    assert world.app.AsyncResult("44").get(timeout=PATIENCE) is None


def test_chords_are_refused_and_send_nothing(world):
    calls = [world.app.signature("remove", ("x",)) for _ in range(2)]
    then = world.app.signature("note", ("x",), immutable=True)
    for chord in (
        celery.chord(calls, then),
        celery.group(calls) | then,
        celery.chord(calls[:1], then),
    ):
        with pytest.raises(ConfigError, match="chords are not sealed"):
            chord.apply_async()
    with pytest.raises(ConfigError, match="chords are not sealed"):
        (world.app.signature("total", (np.arange(2),)) | celery.group(calls) | then).apply_async()
    # A worker refuses one that a client names as what follows a task.
    begun = len(world.said())
    world.app.send_task("total", (np.arange(2),), link=celery.chord(calls, then))
    assert world.ran() == []
    assert "chords are not sealed" in world.said()[begun:]


def test_a_message_that_is_delivered_again_runs_once(world):
    headers, body = world.body("remove", "20", "once")
    data = world.box("web").seal(body, to="worker", about=ABOUT, ttl=60)
    for _ in range(3):
        world.push(headers, data)
    assert world.ran() == ["REMOVED once"]
    assert "box.replayed" in world.said()


def test_a_result_is_read_as_that_of_its_own_task(world):
    first, second = (world.app.send_task("total", (np.arange(n),)) for n in (3, 4))
    assert [first.get(timeout=PATIENCE), second.get(timeout=PATIENCE)] == [3, 6]
    record = {"result": [[first.id, None], None]}  # as Celery keeps one of a group
    of_group = world.box("worker").seal(record, to="web", about="shop results", ttl=60)
    with redis.Redis(unix_socket_path=world.socket) as server:
        prefix = "celery-task-meta-"
        for planted in (server.get(f"{prefix}{second.id}"), pickle.dumps(Evil()), of_group):
            server.set(f"{prefix}{first.id}", planted)
            world.app.backend._cache.clear()
            with pytest.raises((EnvelopeError, kombu.exceptions.DecodeError)):
                # Not get(), which may take what Redis told of the result before.
                world.app.backend.get_task_meta(first.id)
    assert world.ran() == []


@pytest.mark.parametrize(
    ("module", "name", "args", "raised"),
    [
        ("builtins", "FileNotFoundError", [2, "x"], FileNotFoundError),
        ("builtins", "KeyError", "x", KeyError),
        ("celery.exceptions", "TaskRevokedError", ["expired"], celery.exceptions.TaskRevokedError),
        ("builtins", "UnicodeDecodeError", ["x"], RemoteError),
        ("builtins", "SystemExit", [0], RemoteError),
        ("builtins", "KeyboardInterrupt", [], RemoteError),
        ("builtins", "GeneratorExit", [], RemoteError),
        ("builtins", "eval", ["1"], RemoteError),
        ("urllib.error", "HTTPError", ["http://x", 1, "m", {}, None], RemoteError),
        ("os", "system", ["x"], RemoteError),
        ("nothing", "Any", "x", RemoteError),
        (["x"], {}, None, RemoteError),
    ],
)
def test_what_a_failure_is_raised_as(world, module, name, args, raised):
    task_id = os.urandom(4).hex()
    failure = {"exc_type": name, "exc_message": args, "exc_module": module}
    meta = {"status": "FAILURE", "result": failure, "traceback": None, "task_id": task_id}
    data = world.box("worker").seal(meta, to="web", about="shop results", ttl=60)
    with redis.Redis(unix_socket_path=world.socket) as server:
        server.set(f"celery-task-meta-{task_id}", data)
    with pytest.raises(raised) as caught:
        world.app.AsyncResult(task_id).get(timeout=PATIENCE)
    assert type(caught.value) is raised


def test_a_failure_of_a_class_that_is_not_listed(world):
    with pytest.raises(RemoteError, match="subprocess:CalledProcessError: 1, x"):
        world.app.send_task("fail_strangely").get(timeout=PATIENCE)


def test_the_log_has_each_refusal(world):
    for attack in (forged, stranger, stock_pickle, a_result):
        world.push(*attack(world))
    assert world.ran() == []
    rules = {each.text("rule") for each in safeser.audit.read(world.folder / "worker" / "audit")}
    assert {"key.unlisted", "context.none", "box.about", "envelope.format"} <= rules


def test_kombu_without_celery_and_a_shared_secret(world):
    box = safeser.Box.shared(safeser.Secret.generate(), audit=Witness())
    accepted = register(box, "team", about="orders", ttl=60)
    with kombu.Connection(world.app.conf.broker_url) as connection:
        queue = connection.SimpleQueue("orders")
        queue.put({"rows": np.arange(3)}, serializer="team")
        queue.consumer.accept = {accepted}
        got = queue.get(timeout=PATIENCE)
        assert got.payload["rows"].tolist() == [0, 1, 2]
        queue.put(Evil(), serializer="pickle")
        with pytest.raises(kombu.exceptions.ContentDisallowed):
            _ = queue.get(timeout=PATIENCE).payload
        queue.close()
    assert world.ran() == []
