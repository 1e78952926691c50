"""Which submissions are answered by a future that the client holds already, and who hears of it."""

from __future__ import annotations

import threading
import warnings
from types import SimpleNamespace

import pytest
from dask._expr import LLGExpr
from dask._task_spec import Task, TaskRef
from distributed.protocol.serialize import Serialized, serialize, to_serialize

from safeser.dask.clients.future_reuse import FutureReuse
from safeser.dask.clients.sent_definitions import Kept, Sent, SentGraph
from safeser.errors import PolicyDenied
from tests.refusal import refusal


def add(x, y=0):
    return x + y


def mul(x, y=0):
    return x * y


class Loop:
    def add_callback(self, call):
        call()


class State:
    """As Dask's state of a future."""

    status = "pending"


class Future:
    def __init__(self, key, state):
        self.key, self._state = key, state


class Dask:
    """As Dask's client goes about keys: by the futures that it holds, before it asks anybody."""

    asynchronous = False
    id = "Client-1"

    def __init__(self):
        self.futures = {}
        self.sent, self.erred = [], []
        self.loop = Loop()
        self._refcount_lock = threading.RLock()

    def handed(self, key):
        return Future(key, self.futures.setdefault(key, State()))

    def submit(self, func, *args, key, actor=False):
        if key in self.futures:
            return self.handed(key)
        graph = {key: Task(key, func, *args)}
        return self._graph_to_futures(LLGExpr(graph, _determ_token="0" * 32), [key], actor)[key]

    def map(self, func, values, *, key):
        graph = {each: Task(each, func, value) for each, value in zip(key, values, strict=True)}
        futures = self._graph_to_futures(LLGExpr(graph), key)
        return [futures[each] for each in key]

    def _graph_to_futures(self, expr, keys, actors=False):
        futures = {key: self.handed(key) for key in keys}
        written = Serialized(*serialize(to_serialize(expr), on_error="raise"))
        message = {"op": "update-graph", "expr_ser": written, "keys": set(keys), "actors": actors}
        self._send_to_scheduler(message)
        return futures

    def _send_to_scheduler(self, msg):
        self.sent.append(msg)

    def _handle_task_erred(self, key, exception, traceback):
        self.erred.append(key)

    def _release_key(self, key):
        del self.futures[key]


class Client(FutureReuse, Dask):
    pass


@pytest.fixture
def client():
    return Client()


@pytest.fixture
def asked(client):
    """Return the keys of all graphs that were sent."""
    return lambda: [sorted(each["keys"]) for each in client.sent if each["op"] == "update-graph"]


def test_what_it_submitted_itself_it_submits_again_in_silence(client, asked):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.submit(add, 1, key="a")
        client.submit(add, 1, key="a")
        client.map(add, [1, 2], key=["a", "b"])
        client.submit(add, 2, key="b")
    assert asked() == [["a"], ["a", "b"]]


@pytest.mark.parametrize("shown", ["key", "k" * 500, "k\x1b[2J"])
def test_what_was_handed_over_is_said(client, shown):
    client.handed(shown)
    with pytest.warns(UserWarning, match="not submitted by it") as caught:
        client.submit(add, 1, key=shown)
    assert "\x1b" not in str(caught[0].message)
    assert len(str(caught[0].message)) < 300


@pytest.mark.parametrize("release", ["_release_key", "clear"])
def test_a_key_that_was_released_may_come_back_from_elsewhere(client, release):
    client.submit(add, 1, key="a")
    if release == "clear":
        client.futures.clear()  # as when the scheduler restarts
    else:
        client._release_key("a")
        assert len(client._kept) == 0
    client.handed("a")
    with pytest.warns(UserWarning, match="'a'"):
        client.submit(add, 1, key="a")


def test_without_a_policy_another_definition_is_a_warning(client, asked):
    client.submit(add, 1, key="a")
    with pytest.warns(UserWarning, match=r"another definition \(function: mul instead of add\)"):
        client.submit(mul, 1, key="a")
    with pytest.warns(UserWarning, match=r"argument 1: 2 instead of 1\). The first result is used"):
        client.map(add, [2, 3], key=["a", "b"])
    assert asked() == [["a"], ["a", "b"]]


class Link:
    """A connection whose policy refuses another definition."""

    def __init__(self):
        self.noted = []
        words = SimpleNamespace(definition="refuse")
        self.policy = SimpleNamespace(key_conflicts=lambda context: words)

    def outbound(self, kind, operation):
        return (kind, operation)

    def note_refusal(self, context, error, *, where):
        self.noted.append((error.rule, where))


def test_where_policy_refuses_nothing_is_sent_and_it_is_recorded(client, asked):
    link = Link()
    client._policy_link = lambda: link
    first = client.submit(add, 1, key="a")
    for call in (
        lambda: client.submit(mul, 1, key="a"),
        lambda: client.map(mul, [1, 3], key=["a", "b"]),
        lambda: client.submit(add, 1, key="a", actor=True),
    ):
        with refusal(PolicyDenied, "key.definition") as caught:
            call()
        assert caught.value.recorded
    assert asked() == [["a"]]
    assert link.noted == [("key.definition", "a")] * 3
    assert client.futures["a"] is first._state


def test_a_key_that_is_released_on_the_event_loop_is_free(client, asked):
    client._policy_link = Link
    client.submit(add, 1, key="a")
    client.loop.add_callback = lambda call: (client.futures.pop("a", None), call())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.submit(mul, 1, key="a")
    assert asked() == [["a"], ["a"]]


def test_what_was_too_large_to_keep_is_said(client, monkeypatch):
    monkeypatch.setattr("safeser.dask.clients.sent_definitions._MOST_OF_ONE", 10)
    client._policy_link = Link
    client.submit(add, 1, key="a")
    with pytest.warns(UserWarning, match="cannot tell"):
        client.submit(add, 1, key="a")
    client.map(mul, [1], key=["a"])  # the scheduler compares


@pytest.mark.parametrize("known", [True, False])
def test_a_dependency_that_is_gone_is_left_to_the_scheduler(client, asked, known):
    client._policy_link = Link
    client.submit(add, 1, key="x")
    client.submit(add, TaskRef("x"), key="a")
    if not known:
        client._release_key("x")
    fused = {"x": Task("x", mul, 1), "a": Task("a", add, Task("x", mul, 1))}
    if known:
        with pytest.raises(PolicyDenied, match="argument 1"):
            client._graph_to_futures(LLGExpr(fused), ["a"])
    else:
        client._graph_to_futures(LLGExpr(fused), ["a"])
        assert asked()[-1] == ["a"]


@pytest.mark.parametrize("again", [add, mul])
@pytest.mark.parametrize("how", ["submit", "map"])
def test_after_a_refusal_a_key_is_submitted_anew(client, asked, how, again):
    """The error of the future that was refused holds that future, so that it is never released."""
    client._policy_link = Link
    refused = client.submit(add, 1, key="a")._state
    refused.status, refused.exception = "error", PolicyDenied("no", rule="key.definition")
    if how == "submit":
        made = client.submit(again, 1, key="a")
    else:
        (made,) = client.map(again, [1], key=["a"])
    assert asked() == [["a"], ["a"]]
    assert made._state is client.futures["a"] is not refused
    with refusal(PolicyDenied, "key.definition"):
        client.submit(add, 3, key="a")


def test_the_failure_of_a_refused_graph_leaves_the_first_future_alone(client):
    held = client.handed("a")
    state = held._state
    with pytest.warns(UserWarning, match="handed over"):
        (later,) = client.map(add, [1], key=["a"])
    client._handle_task_erred("a", PolicyDenied("no", rule="key.definition"), None)
    assert held._state is client.futures["a"] is state
    assert later._state is not state
    assert later._state.status == "error"
    assert client.sent[-1] == {"op": "client-desires-keys", "keys": ["a"], "client": "Client-1"}
    assert client.erred == []
    client._handle_task_erred("a", PolicyDenied("no", rule="key.definition"), None)
    assert client.erred == ["a"]  # it is the task's own


def test_the_refusal_of_a_graph_may_arrive_before_its_submission_returns(client, monkeypatch):
    held = client.handed("a")
    refused = PolicyDenied("no", rule="key.definition")
    hearing = threading.Thread(target=client._handle_task_erred, args=("a", refused, None))

    def answered(message):
        if message["op"] == "update-graph":
            hearing.start()
            hearing.join(0.2)  # it waits for this submission, or is over

    monkeypatch.setattr(Dask, "_send_to_scheduler", lambda _, message: answered(message))
    with pytest.warns(UserWarning, match="handed over"):
        (later,) = client.map(add, [1], key=["a"])
    hearing.join()
    assert client.erred == []
    assert (held._state.status, later._state.status) == ("pending", "error")


# --- what is kept --------------------------------------------------------------------------------


def frames(value):
    graph = LLGExpr({"k": Task("k", add, value)}, _determ_token="0" * 32)
    return Serialized(*serialize(to_serialize(graph), on_error="raise")).frames


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr("safeser.dask.clients.sent_definitions._MOST_BYTES", 1000)
    kept, states = Kept(), {}
    for key in range(10):
        graph, states[key] = SentGraph(frames(key), False), State()
        kept.fit(graph, states)
        kept.keep(key, Sent(states[key], graph))
    assert kept._bytes <= 1000
    assert not kept.find(9, states[9]).graph.known
    states.clear()
    graph = SentGraph(frames("x"), False)
    kept.fit(graph, states)
    assert len(kept) == 0 or graph.known is False
    for key in range(10):
        kept.drop(key)
    assert kept._bytes == 0


def test_a_large_array_is_kept_as_a_digest():
    numpy = pytest.importorskip("numpy")
    data = numpy.arange(100_000)
    graph = SentGraph(frames(data), False)
    assert graph.size < 10_000
    assert graph.same_bytes(SentGraph(frames(data.copy()), False))
    data[5] = 0
    assert not graph.same_bytes(SentGraph(frames(data), False))
    assert SentGraph(frames(numpy.zeros((0, 3))), False).known
    (task,) = graph.tasks({}).values()
    assert task.args[0].shape == (100_000,)


def test_one_call_that_is_sent_twice_is_sent_in_the_same_bytes():
    clients = Client(), Client()
    for number, client in enumerate(clients):
        graph = LLGExpr({"a": Task("a", add, 1)}, _determ_token=f"{number}" * 32)
        client._graph_to_futures(graph, ["a"])
    first, second = (client.sent[0]["expr_ser"].frames for client in clients)
    assert first == second
