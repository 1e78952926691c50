"""What the demo's children say when something goes wrong: the reason, and they go on."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from examples.demo import alice, attacker, group_user, messages
from examples.demo.pipe import Pipe


@pytest.fixture
def told(monkeypatch):
    """Return what a child says that is given *commands*."""

    def run(main, argument, *commands):
        events = io.StringIO()
        lines = "".join(json.dumps(command) + "\n" for command in commands)
        pipe = Pipe(io.StringIO(lines), events)
        monkeypatch.setattr(Pipe, "of_this_process", lambda: pipe)
        main(argument)
        return [json.loads(line) for line in events.getvalue().splitlines()]

    return run


class Broken:
    """A client of which nothing works, not even its end."""

    def submit(self, *_, **__):
        return SimpleNamespace(result=lambda _: "no array")

    def close(self, timeout):
        raise OSError("gone")


def test_an_attack_that_cannot_be_made_is_told_and_the_next_one_heard(told):
    events = told(attacker.main, "stranger", {"do": "attack"}, {"do": "attack"}, {"do": "end"})
    assert [event["event"] for event in events] == ["failed", "failed"]
    assert events[0]["reason"] == "KeyError: 'address'"


def test_alice_tells_what_failed_and_leaves(told, monkeypatch):
    monkeypatch.setattr(alice.probe, "install", lambda: None)
    found = iter([OSError("no scheduler"), Broken()])

    def connect(address):
        made = next(found)
        if isinstance(made, Exception):
            raise made
        return made

    monkeypatch.setattr(alice, "_connect", connect)
    events = told(alice.main, "tcp://127.0.0.1:1", {"do": "again"}, {"do": "again"})
    assert [event["reason"] for event in events] == [
        "OSError: no scheduler",
        "ValueError: the squares are wrong",
    ]


@pytest.mark.parametrize("name", [None, "hello"])
def test_alice_may_not_come_to_connect_at_all(told, monkeypatch, name):
    monkeypatch.setattr(alice.probe, "install", lambda: None)
    assert told(alice.main, "tcp://127.0.0.1:1", *([{"do": "end"}] if name else [])) == []


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (OSError("cut"), "no answer (OSError)"),
        (TimeoutError(), "no answer (TimeoutError)"),
        (ValueError("odd"), "ValueError: odd"),
    ],
)
def test_whatever_comes_back_to_an_attacker_is_said(raised, said):
    async def read():
        raise raised

    assert asyncio.run(messages._answer(SimpleNamespace(read=read))) == said


def test_a_member_tells_what_failed_and_leaves(told, monkeypatch):
    found = iter([OSError("no scheduler"), Broken()])

    def connect(address, timeout):
        made = next(found)
        if isinstance(made, Exception):
            raise made
        return made

    monkeypatch.setattr(group_user.safeser, "Client", connect)
    events = told(group_user.main, "safeser://127.0.0.1:1", *[{"do": "meet", "workers": 2}] * 2)
    assert [event["reason"].partition(":")[0] for event in events] == ["OSError", "AttributeError"]


def test_an_attacker_who_is_turned_away_says_so(tmp_path: Path, monkeypatch):
    async def connect(*_, **__):
        raise OSError("refused")

    monkeypatch.setattr(messages, "connect", connect)
    said = asyncio.run(messages.greet_with_pickle("tcp://127.0.0.1:1", tmp_path / "mark", {}))
    assert said == "not connected (OSError)"
