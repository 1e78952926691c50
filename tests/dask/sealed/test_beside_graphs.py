"""What a client sends beside a graph, and what it leaves out."""

from __future__ import annotations

import pytest
from dask._task_spec import Task
from distributed.protocol.serialize import Serialized, ToPickle

from safeser.dask.clients.sealing import Sealing
from tests.dask.sealed.graphs import written


class Said:
    """In place of Dask's client."""

    def __init__(self):
        self.said = []

    def _send_to_scheduler(self, message):
        self.said.append(message)


class Sends(Sealing, Said):
    """As much of a client as sends a graph."""


@pytest.mark.parametrize("is_signed", [True, False])
@pytest.mark.parametrize(
    ("annotations", "left"), [({}, None), ({"priority": 1}, {"priority": 1})], ids=["none", "some"]
)
def test_what_is_empty_beside_a_graph_is_not_sent(alice, audience, is_signed, annotations, left):
    client = Sends()
    client.begin_to_keep()
    if is_signed:
        graph = written({"a": Task("a", len, ())}, alice, audience)
        annotations = {**annotations, "workers": len}  # functions were called when it was written
    else:
        graph = {"serializer": "pickle"}, [b""]
    message = {"op": "update-graph", "expr_ser": Serialized(*graph), "keys": {"a"}}
    beside = {"annotations": annotations, "code": (), "span_metadata": {"collections": []}}
    before = message | {name: ToPickle(each) for name, each in beside.items()}
    client._send_to_scheduler(dict(before))
    [said] = client.said
    assert "code" not in said
    assert said["span_metadata"] is before["span_metadata"]
    assert (said["annotations"].data if "annotations" in said else None) == left


@pytest.mark.parametrize("is_signed", [True, False])
def test_what_submit_says_of_every_graph_is_no_payload_beside_a_signed_one(is_signed):
    client = Sends()
    client.begin_to_keep()
    said = ToPickle({"collections": [{"type": "Future"}]})
    graph = Serialized({"serializer": "sealed" if is_signed else "pickle"}, [b""])
    message = {"op": "update-graph", "expr_ser": graph, "span_metadata": said}
    client._send_to_scheduler(message | dict.fromkeys(("annotations", "code"), ToPickle({})))
    [sent] = client.said
    assert sent["span_metadata"] == (said.data if is_signed else said)
