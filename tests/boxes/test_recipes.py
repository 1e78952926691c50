"""The recipes of docs/how-to/boxes.md, as printed, with the attack of each field."""

from __future__ import annotations

import os
import pickle
import re
import struct
import threading
from multiprocessing.connection import Client, Listener
from types import SimpleNamespace

import huey
import joblib
import numpy as np
import pytest
import zmq
from sklearn.linear_model import LinearRegression

import safeser
from safeser.errors import AuthenticationError, EnvelopeError, SafeserError
from tests.conftest import Witness
from tests.pages import Page, matches, shell
from tests.processes import PATIENCE

PAGE = Page("how-to/boxes.md")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """The page, run from top to bottom in a folder."""
    folder = tmp_path_factory.mktemp("boxes")
    with shell(folder, os.environ) as opened:
        [command] = PAGE.commands
        printed, code = opened.run(command.text, PATIENCE)
        assert code == 0
        assert matches(printed, command.printed)
    for name, text in PAGE.files.items():
        (folder / name).write_text(text, "utf-8")
    names = {"__name__": "page"}
    before = os.getcwd()
    os.chdir(folder)
    try:
        for block in re.findall(r"^```python\n(.*?)^```", PAGE.text, re.M | re.S):
            exec(compile(block, "boxes.md", "exec"), names)
        yield SimpleNamespace(folder=folder, **names)
        names["cache"].close()
        for box in (names["web"], names["worker"]):
            box.close()
    finally:
        os.chdir(before)


@pytest.fixture
def evil(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    yield Evil()
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def sockets():
    """Returns two sockets of ZeroMQ that are connected."""
    with zmq.Context() as context:
        made = []

        def pair(listening, connecting, *, name="inproc://sockets", **options):
            first, second = context.socket(listening), context.socket(connecting)
            made.extend((first, second))
            for each in (first, second):
                each.linger, each.rcvtimeo, each.sndtimeo = 0, 60_000, 60_000
            for option, value in options.items():
                setattr(second, option, value)
            first.bind(name)
            second.connect(name)
            return first, second

        yield pair
        for each in made:
            each.close()


def test_push_and_pull(world, sockets, evil):
    pull, push = sockets(zmq.PULL, zmq.PUSH)
    world.push(push, {"ids": np.arange(4)})
    sender, task = world.pull(pull)
    assert (sender, task["ids"].tolist()) == ("web", [0, 1, 2, 3])
    push.send_pyobj(evil)
    push.send(b"")
    push.send(world.web.seal(1, to="worker", about="questions", ttl=60))
    push.send(world.worker.seal(1, to="web", about="tasks", ttl=60))
    for rule in ("envelope.format", "envelope.format", "box.about", "box.recipient"):
        with pytest.raises(EnvelopeError) as caught:
            world.pull(pull)
        assert caught.value.rule == rule
    world.push(push, "goes on")
    assert world.pull(pull) == ("web", "goes on")


def test_dealer_and_router(world, sockets, evil):
    router, dealer = sockets(zmq.ROUTER, zmq.DEALER)
    server = threading.Thread(target=world.answer, args=(router, lambda question: question + 1))
    server.start()
    assert world.ask(dealer, np.arange(3)).tolist() == [1, 2, 3]
    server.join()
    dealer.send_pyobj(evil)
    with pytest.raises(EnvelopeError):
        world.answer(router, lambda question: question)


#: What ends no loop of a server that catches SafeserError: from strangers, then from who has a key.
STRANGE_PARTS = [[b""], [b"a", b"b"], [b"", b"", b""], [b"x"] * 1000]
STRANGE_QUESTIONS = [1, None, "ab", ("1", 2, 3), (["1"], 2), {"1": 2}, ("x" * 5000, 2)]


def test_a_server_outlives_strange_messages(world, sockets):
    router, dealer = sockets(zmq.ROUTER, zmq.DEALER)
    for parts in STRANGE_PARTS:
        dealer.send_multipart(parts)
        with pytest.raises(EnvelopeError):
            world.answer(router, lambda question: question)
    for question in STRANGE_QUESTIONS:
        dealer.send(world.web.seal(question, to="worker", about="questions", ttl=60))
        with pytest.raises(SafeserError):
            world.answer(router, lambda question: question)
    server = threading.Thread(target=world.answer, args=(router, lambda question: question + 1))
    server.start()
    assert world.ask(dealer, 1) == 2
    server.join()


def test_an_answer_to_another_question_is_refused(world, sockets):
    router, dealer = sockets(zmq.ROUTER, zmq.DEALER)
    answers = []

    def server():
        world.answer(SimpleNamespace(**vars(Recording(router, answers))), lambda question: question)
        route, _ = router.recv_multipart()
        router.send_multipart([route, answers[0]])

    thread = threading.Thread(target=server)
    thread.start()
    assert world.ask(dealer, 1) == 1
    with pytest.raises(EnvelopeError) as caught:
        world.ask(dealer, 2)
    thread.join()
    assert caught.value.rule == "box.about"


class Recording:
    """A router that keeps the answers that pass it."""

    def __init__(self, router, answers):
        def send_multipart(frames):
            answers.append(frames[1])
            router.send_multipart(frames)

        self.recv_multipart, self.send_multipart = router.recv_multipart, send_multipart


def test_who_takes_the_identity_of_another_cannot_read_its_answers(world, sockets):
    router, thief = sockets(zmq.ROUTER, zmq.DEALER, routing_id=b"web")
    thief.send(world.web.seal(("7", "ask"), to="worker", about="questions", ttl=60))  # overheard
    world.answer(router, lambda question: "secret")
    taken = thief.recv()
    assert b"secret" not in taken
    other = safeser.Box.shared(safeser.Secret.generate(), audit=Witness())
    for box in (world.worker, other):
        with pytest.raises(SafeserError):
            box.open(taken, about="answer 7")


def test_model_files(world, tmp_path, evil):
    model = LinearRegression().fit(np.arange(4.0).reshape(2, 2), [0.0, 1.0])
    path = tmp_path / "model-7"
    world.save(path, model)
    assert np.array_equal(world.load(path).coef_, model.coef_)
    renamed = path.rename(tmp_path / "model-8")
    with pytest.raises(EnvelopeError) as caught:
        world.load(renamed)
    assert caught.value.rule == "box.about"
    for write in (pickle.dump, joblib.dump):
        with path.open("wb") as file:
            write(evil, file)
        with pytest.raises(EnvelopeError):
            world.load(path)
    # What is sealed for the reader alone has no signature: its thief could have made it.
    path.write_bytes(world.web.seal(model, to="worker", about=path.name, ttl=None))
    with pytest.raises(EnvelopeError) as caught:
        world.load(path)
    assert caught.value.rule == "box.unsigned"


def test_a_model_of_an_author_who_is_not_in_the_roster(world, tmp_path):
    with shell(tmp_path, os.environ) as opened:
        assert opened.run("safeser keys init keys --principals web", PATIENCE)[1] == 0
    (tmp_path / "keys/policy.yaml").write_text(PAGE.files["keys/policy.yaml"])
    path = tmp_path / "model"
    with safeser.Box.at(tmp_path / "keys", "web") as forger:
        path.write_bytes(forger.seal([1], about="model", ttl=None, signed=True))
    with pytest.raises(AuthenticationError) as caught:
        world.load(path)
    assert caught.value.rule == "key.unlisted"


def test_huey(world, tmp_path, evil):
    secret = safeser.Secret.generate()
    box = safeser.Box.shared(secret, audit=Witness())
    app = huey.SqliteHuey("shop", filename=tmp_path / "db", serializer=world.Sealed(box, "shop"))
    ran = []

    @app.task(retries=1)
    def note(array):
        ran.append(array.tolist())
        return array.sum()

    @app.task()
    def fail():
        raise ZeroDivisionError

    def run(expected):
        task = app.dequeue()
        assert task.name == expected
        app.execute(task)

    result = note(np.arange(3))
    run("note")
    assert (result.get(), ran) == (3, [[0, 1, 2]])
    failed = fail()
    run("fail")
    with pytest.raises(huey.exceptions.TaskException, match="ZeroDivisionError"):
        failed.get()
    then = note.s(np.arange(2)).then(fail.s()).error(note.s(np.arange(1)))
    app.enqueue(then)
    task = app.dequeue()
    assert (task.on_complete.name, task.on_error.name) == ("fail", "note")

    other = safeser.Box.shared(safeser.Secret.generate(), audit=Witness())
    message = app._registry.create_message(note.s(np.arange(9)))
    for planted in (
        pickle.dumps(evil),
        pickle.dumps(message),
        world.Sealed(other, "shop").serialize(message),
        world.Sealed(box, "another").serialize(message),
    ):
        app.storage.enqueue(planted)
        with pytest.raises(SafeserError):
            app.dequeue()
    assert ran == [[0, 1, 2]]
    app.storage.close()


def test_multiprocessing(world, tmp_path, evil):
    with Listener(str(tmp_path / "socket"), "AF_UNIX", authkey=b"known to all") as listener:
        peer = []
        connect = threading.Thread(
            target=lambda: peer.append(Client(listener.address, authkey=b"known to all"))
        )
        connect.start()
        with listener.accept() as connection:
            connect.join()
            with peer[0] as sender:
                world.tell(sender, {"job": np.arange(2)})
                assert world.hear(connection)["job"].tolist() == [0, 1]
                sender.send(evil)
                with pytest.raises(EnvelopeError):
                    world.hear(connection)
                world.tell(sender, "goes on")
                assert world.hear(connection) == "goes on"
                os.write(sender.fileno(), struct.pack("!i", (1 << 20) + 1))  # a length alone
                with pytest.raises(OSError, match="bad message length"):
                    world.hear(connection)
