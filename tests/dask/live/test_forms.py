"""Every form of a payload in memory, where Dask would open one: what live rows show for a class."""

from __future__ import annotations

import pytest

from safeser.errors import SafeserError
from tests.dask.live.payloads import FORMS, data_of, filled
from tests.dask.live.table import REGISTER_WORKER

#: By whose key, in whose server, and a message with the place of the payload.
SERVERS = {
    "any field of a scheduler": ("bob", "scheduler", lambda it: {"op": "identity", "note": it}),
    "any field of a worker": ("bob", "worker", lambda it: {"op": "identity", "note": it}),
    "any field of a nanny": ("scheduler", "nanny", lambda it: {"op": "identity", "note": it}),
    "data of a scheduler": ("bob", "scheduler", lambda it: {"op": "scatter", "data": {"x": it}}),
    "data of a worker": ("carol", "worker", lambda it: {"op": "update_data", "data": {"x": it}}),
}

#: Bytes are data where no process opens them.
DATA = {"bytes", "in-msgpack", "eager-in-msgpack"}


@pytest.fixture(params=FORMS)
def form(request):
    return request.param


@pytest.fixture
def payload(form, tmp_path):
    """The payload in that form; whatever opens it leaves a file."""
    yield FORMS[form](data_of(form, tmp_path / "marker"))
    assert not list(tmp_path.glob("marker*"))


@pytest.mark.parametrize("place", SERVERS)
def test_no_server_opens_it(talk, payload, place, form):
    sender, server, message = SERVERS[place]
    t = talk(sender, server, "dask-cluster" if sender == "carol" else "demo")
    got = t.attack(message(payload))
    assert "operation.not-granted" not in t.refused_by_server
    assert (got is t.SKIP) == bool(t.refused_by_server), t.refused_by_server
    assert t.refused_by_server or form in DATA


@pytest.mark.parametrize("place", ["reply", "stream"])
def test_no_client_opens_it(talk, payload, place, form):
    t = talk("alice")
    try:
        if place == "reply":
            t.request({"op": "get_metadata", "keys": ["x"]})
            t.attack_back({"a": payload})
        else:
            event = {"op": "event", "topic": "t", "event": (0, payload)}
            t.client_stream().attack_back([event])
    except SafeserError:
        assert t.refused_by_asker
    assert t.refused_by_asker or form in DATA


@pytest.mark.parametrize("field", ["address", "nanny"])
def test_no_address_of_a_worker_leads_to_another_scheme(talk, field):
    fine = filled(REGISTER_WORKER, lambda place: "safeser://127.0.0.1:1")
    t = talk("worker")
    t.refuses({**fine, "name": "w", field: "tcp://127.0.0.1:1"})
    assert t.refused_by_server == ["operation.field-shape"]


@pytest.mark.parametrize("op", ["acquire-replicas", "refresh-who-has"])
def test_no_element_leads_a_worker_to_another_scheme(talk, op):
    where = {"op": op, "who_has": {"k": ["tcp://127.0.0.1:1"]}, "stimulus_id": "x"}
    t = talk("worker").worker_stream()
    t.attack_back([{**where, "nbytes": {"k": 1}} if op == "acquire-replicas" else where])
    assert t.refused_by_asker == ["operation.field-shape"]
