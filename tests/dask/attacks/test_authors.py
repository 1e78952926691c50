"""Relays: nobody's word about an author becomes the scheduler's, and lists are kept on both ends.

The peers here hold valid sessions. A hostile worker names other authors than itself; what it wrote
must reach a client as its own or as nobody's.
"""

from __future__ import annotations

import pickle

import pytest

from safeser.dask.contents.failures import Relayed
from safeser.errors import PayloadError, PolicyDenied
from tests.dask.attacks.rows import PICKLE
from tests.refusal import refusal

POLICY = """
safeser: 1
name: relays
revision: 1
principals: {scheduler: {}, worker: {}, nanny: {}, alice: {}, bob: {}}
contexts:
  - name: down
    sender: scheduler
    recipient: worker
    operations: {grant: [get_data]}
  - name: up
    sender: worker
    recipient: scheduler
    authors: [alice]
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    operations: {grant: [register-worker]}
  - name: ask
    sender: bob
    recipient: scheduler
    operations: {grant: [gather]}
  - name: results
    sender: scheduler
    recipient: bob
    authors: [worker]
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
"""


def fetched(talk, row, policy="demo"):
    """Return what a scheduler keeps of *row*, which a worker sent it in a reply."""
    ask = talk("scheduler", "worker", policy)
    ask.request({"op": "get_data", "keys": ["x"], "who": None, "reply": True})
    return ask.attack_back({"status": "OK", "data": {"x": row}})["data"]["x"]


def delivered(talk, relayed, user="bob", policy="demo"):
    """Return what *user* reads of what the scheduler relays, and its connection."""
    down = talk(user, "scheduler", policy)
    down.request({"op": "gather", "keys": ["x"], "reply": True})
    return down.reply({"status": "OK", "data": {"x": relayed}})["data"]["x"], down


@pytest.mark.parametrize("claimed", ["scheduler", "alice", "bob", "nanny", "any", "unknown"])
def test_what_a_worker_says_of_an_author_the_scheduler_does_not_repeat(talk, claimed):
    relayed = fetched(talk, talk("worker").Row(*talk("worker").in_msgpack(7), claimed))
    assert isinstance(relayed, Relayed)
    assert relayed.author == "any"
    value, down = delivered(talk, relayed)
    assert value == 7
    assert down.near.audit.events[-1]["author"] == "any"


@pytest.mark.parametrize(
    ("claimed", "policy", "author"),
    [("worker", "demo", "worker"), (None, "demo", "worker"), ("alice", POLICY, "alice")],
)
def test_what_a_worker_wrote_is_its_own_or_of_whom_the_context_lists(talk, claimed, policy, author):
    row = talk("worker").Row(*talk("worker").in_msgpack(7), claimed)
    assert fetched(talk, row, policy).author == author


def test_pickles_of_listed_authors_reach_a_client_and_no_others(talk):
    row = talk("worker").Row(PICKLE, (pickle.dumps({"x": 1}),))
    relayed = fetched(talk, row, POLICY)
    value, down = delivered(talk, relayed, policy=POLICY)
    assert value == {"x": 1}
    assert down.near.audit.events[-1]["author"] == "worker"
    # The scheduler keeps the list where it sends.
    relayed.author = "alice"
    with pytest.raises(PayloadError, match=r"listed author.*author\.relayed"):
        delivered(talk, relayed, policy=POLICY)


@pytest.mark.parametrize(
    ("author", "rule"),
    [
        *((author, "author.relayed") for author in ("alice", "any", "nanny")),
        # A listed author sends no code where none is granted.
        *((author, "context.family") for author in ("worker", "scheduler")),
    ],
)
def test_the_client_keeps_the_list_by_itself(talk, marker, author, rule):
    down = talk("bob", "scheduler", POLICY)
    down.request({"op": "gather", "keys": ["x"], "reply": True})
    with refusal(PolicyDenied, rule):
        down.attack_back({"data": {"x": down.Row(PICKLE, (marker.pickle,), author)}})
