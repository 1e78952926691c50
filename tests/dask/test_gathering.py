"""What ``gather(errors="skip")`` leaves out, and what it asks for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from distributed import Future
from distributed.utils_comm import pack_data, unpack_remotedata

from safeser.dask.gathering import Gathering
from safeser.errors import AuthenticationError, PayloadError, PolicyDenied, SerializationError


class Known(Future):
    """A future of no client."""

    def __init__(self, key, status="finished"):
        self.key, self._status, self._cleared, self._id = key, status, True, key
        self._client = SimpleNamespace()

    status = property(lambda self: self._status)
    __repr__ = object.__repr__
    __hash__ = object.__hash__

    def __del__(self): ...


class Dask:
    """As Dask's client gathers: all or nothing, but for futures that failed."""

    def __init__(self, bad):
        self.bad, self.asked = bad, []

    async def _gather(self, futures, errors, direct, local_worker):
        unpacked, wanted = unpack_remotedata(futures, byte_keys=True)
        self.asked.append([one.key for one in wanted])
        for one in wanted:
            if one.key in self.bad:
                raise self.bad[one.key]
        return pack_data(
            unpacked,
            {
                one.key: f"value of {one.key}" if one.status == "finished" else None
                for one in wanted
            },
        )


class Client(Gathering, Dask):
    pass


DENIED = PolicyDenied("not for you", rule="family.not-listed")
UNSENT = SerializationError("too large", rule="peer.unsent")


def gathered(client, futures, errors="skip"):
    return asyncio.run(client._gather(futures, errors))


@pytest.mark.parametrize("error", [DENIED, UNSENT, PayloadError("no", rule="payload.key")])
def test_what_does_not_come_is_left_out_of_a_list(error):
    client = Client({"b": error})
    keys = "abcde"
    got = gathered(client, [Known(key) for key in keys])
    assert got == [f"value of {key}" for key in keys if key != "b"]


def test_none_stands_for_it_elsewhere():
    a, b, erred = Known("a"), Known("b"), Known("c", "error")
    client = Client({"b": DENIED})
    assert gathered(client, {"x": a, "y": b, "z": erred}) == {
        "x": "value of a",
        "y": None,
        "z": None,
    }
    assert gathered(client, [a, [b], {"k": b}, erred, 5]) == [
        "value of a",
        [None],
        {"k": None},
        5,
    ]
    assert gathered(client, b) is None


def test_few_are_asked_for_again_where_few_do_not_come():
    many = 256
    client = Client({7: DENIED, 200: UNSENT})
    got = gathered(client, [Known(key) for key in range(many)])
    assert len(got) == many - 2
    # Once by Dask's own way, once apart, and then two for each halving of what held a bad one.
    assert len(client.asked) <= 2 + 2 * 2 * 8


def test_all_may_be_refused():
    assert gathered(Client(dict.fromkeys("ab", DENIED)), [Known("a"), Known("b")]) == []


@pytest.mark.parametrize(
    ("error", "errors"),
    [(DENIED, "raise"), (AuthenticationError("no"), "skip"), (OSError(), "skip")],
)
def test_all_else_is_raised_as_ever(error, errors):
    client = Client({"a": error})
    with pytest.raises(type(error)):
        gathered(client, [Known("a")], errors)
    assert len(client.asked) == 1


def test_what_comes_is_asked_for_once():
    client = Client({})
    assert gathered(client, [Known("a")]) == ["value of a"]
    assert client.asked == [["a"]]
