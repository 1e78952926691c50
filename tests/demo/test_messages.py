"""The attackers' messages do on stock Dask's decoder what the table says, and nothing more."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from distributed.protocol import dumps, loads
from distributed.protocol.serialize import Serialized

from examples.demo import rogue
from examples.demo.attacks import ATTACKS, markers
from examples.demo.messages import BUILDERS, evil, evil_value, payload

OPENED_BY_THE_DECODER = ("pickled", "type-serialized", "object-array")


def test_an_evil_pickle_makes_its_marker_and_nothing_else(tmp_path: Path) -> None:
    pickle.loads(evil(tmp_path / "one"))
    assert pickle.loads(evil_value(tmp_path / "two", UserWarning)) is UserWarning
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


@pytest.mark.parametrize(
    "attack", [a for a in ATTACKS if a.attacker == "bob"], ids=lambda a: a.name
)
def test_each_message_of_bobs_can_be_sent(attack, tmp_path: Path) -> None:
    messages = BUILDERS[attack.name](markers(tmp_path, attack), "secret")
    assert all(isinstance(message["op"], str) for message in messages)
    assert all(dumps(message) for message in messages)
    assert rogue._frames(messages[-1]), "it cannot be sent on safeser://"
    assert rogue._frames([messages[-1]])
    assert not list(tmp_path.iterdir()), "building it ran it"


@pytest.mark.parametrize("name", OPENED_BY_THE_DECODER)
def test_stock_decoding_runs_them(name: str, tmp_path: Path, caplog) -> None:
    attack = next(each for each in ATTACKS if each.name == name)
    message = BUILDERS[name](markers(tmp_path, attack), "")[0]
    try:
        loads(dumps(message))
    except Exception as error:  # it runs, whatever comes of it
        caplog.clear()
        del error
    assert (tmp_path / f"{name}-0").exists()


def test_a_row_of_a_rogue_is_as_it_was_given(tmp_path: Path) -> None:
    row, eager = rogue._leaf(payload(tmp_path / "x"))
    assert eager
    assert row.header == {"serializer": "pickle", "writeable": []}
    row, eager = rogue._leaf(Serialized({"serializer": "dask", "flags": (1,)}, [b"x"]))
    assert not eager
    assert row.header == {"serializer": "dask", "flags": [1]}
