"""Which submissions are answered by a future that the client holds already, and who hears of it."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import pytest

from safeser.dask.handed import Handed


class Dask:
    """As Dask's client goes about keys: by the futures that it holds, before it asks anybody."""

    def __init__(self):
        self.futures = {}
        self.asked = []

    def handed(self, key):
        return SimpleNamespace(key=key, _state=self.futures.setdefault(key, object()))

    def submit(self, key):
        return self.handed(key) if key in self.futures else self._graph_to_futures(0, [key])[key]

    def map(self, keys):
        futures = self._graph_to_futures(0, keys)
        return [futures[key] for key in keys]

    def _graph_to_futures(self, expr, keys):
        self.asked += keys
        return {key: self.handed(key) for key in keys}

    def _release_key(self, key):
        del self.futures[key]


class Client(Handed, Dask):
    pass


@pytest.fixture
def client():
    return Client()


def test_what_it_submitted_itself_it_submits_again_in_silence(client):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        client.submit("a")
        client.submit("a")
        client.map(["a", "b"])
        client.submit("b")
    assert client.asked == ["a", "a", "b"]


@pytest.mark.parametrize("shown", ["key", "k" * 500, "k\x1b[2J"])
def test_what_was_handed_over_is_said(client, shown):
    client.handed(shown)
    with pytest.warns(UserWarning, match="not submitted by it") as caught:
        client.submit(shown)
    assert "\x1b" not in str(caught[0].message)
    assert len(str(caught[0].message)) < 300


def test_it_stays_handed_over_whatever_is_submitted_under_it(client):
    client.handed("a")
    for _ in range(2):
        with pytest.warns(UserWarning, match="'a'"):
            client.map(["b", "a"])
        with pytest.warns(UserWarning, match="'a'"):
            client.submit("a")


def test_one_warning_stands_for_all(client):
    for key in "abc":
        client.handed(key)
    with pytest.warns(UserWarning, match="'a'") as caught:
        client.map(list("abc"))
    assert len(caught) == 1


def test_a_key_that_was_released_may_come_back_from_elsewhere(client):
    client.submit("a")
    client._release_key("a")
    client.handed("a")
    with pytest.warns(UserWarning, match="'a'"):
        client.submit("a")
    assert client._sent == {}


def test_so_may_one_that_dask_dropped_by_itself(client):
    client.submit("a")
    client.futures.clear()  # as when the scheduler restarts
    client.handed("a")
    with pytest.warns(UserWarning, match="'a'"):
        client.submit("a")
