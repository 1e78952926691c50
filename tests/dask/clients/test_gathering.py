"""What ``gather(errors="skip")`` leaves out, and what it asks for."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import distributed
import pytest
from distributed import Future
from distributed.client import FutureState
from distributed.utils_comm import pack_data, unpack_remotedata
from tornado.ioloop import IOLoop

from safeser.dask.clients.gathering import Gathering
from safeser.errors import (
    AuditError,
    AuthenticationError,
    PayloadError,
    PolicyDenied,
    SerializationError,
)
from tests.dask.patched import patched


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


@pytest.mark.parametrize(
    ("error", "errors"),
    [(DENIED, "raise"), (AuthenticationError("no"), "skip"), (OSError(), "skip")],
)
def test_all_else_is_raised_as_ever(error, errors):
    client = Client({"a": error})
    with pytest.raises(type(error)):
        gathered(client, [Known("a")], errors)
    assert len(client.asked) == 1


# -- several gathers at a time, by Dask's own client -----------------------------------------------


class Scheduler:
    """One that refuses whatever is asked together with a key that is bad."""

    def __init__(self, bad):
        self.bad, self.asked = bad, []

    async def gather(self, keys):
        self.asked.append(set(keys))
        await asyncio.sleep(0)
        if not self.bad.isdisjoint(keys):
            raise PolicyDenied("not for you", rule="family.not-listed")
        return {"status": "OK", "data": {key: f"value of {key}" for key in keys}}


class Done:
    """The state of a future that is finished."""

    status = "finished"

    async def wait(self): ...


class Whole(Gathering, distributed.Client):
    """Dask's client, which never connected."""

    def __init__(self, bad):
        self.scheduler = Scheduler(bad)
        self.futures = {}
        self.direct_to_workers = False
        self._gather_semaphore = asyncio.Semaphore(5)
        self._gather_keys = self._gather_future = None

    __del__ = __repr__ = object.__repr__

    def future(self, key):
        future = Known(key)
        future._client = self
        self.futures[key] = future._state = Done()
        return future


def together(bad, *wanted, errors="raise"):
    async def main():
        client = Whole(bad)
        waiting = [client._gather([client.future(key) for key in keys], errors) for keys in wanted]
        got = await asyncio.gather(*waiting, return_exceptions=True)
        return got, client.scheduler.asked

    return asyncio.run(main())


@pytest.mark.parametrize("errors", ["raise", "skip"])
def test_a_refusal_is_for_those_who_asked_for_what_is_refused(errors):
    got, asked = together({"bad"}, ["good"], ["bad", "fine"], ["other"], errors=errors)
    if errors == "raise":
        assert asked[0] == {"good", "fine", "bad", "other"}  # as Dask does
        assert isinstance(got.pop(1), PolicyDenied)
        assert got == [["value of good"], ["value of other"]]
    else:
        assert got == [["value of good"], ["value of fine"], ["value of other"]]


class Refused(Known):
    """A future whose value exists and may not come."""

    def __init__(self, key, error):
        super().__init__(key)
        self._error = error
        self._state = FutureState(key)
        self._state.finish()

    status = property(lambda self: self._state.status)

    async def _result(self, raiseit=True):
        if self.status == "error":
            return type(self._error), self._state.exception, None
        raise self._error


@pytest.mark.parametrize(
    "refusal",
    [DENIED, AuditError("the log's disk is full"), OSError("lost"), Exception("of a scheduler's")],
)
@pytest.mark.parametrize("raises", [True, False])
def test_as_completed_hands_out_a_refusal(raises, refusal):
    """Who iterates waited for that future for ever."""

    async def run():
        loop = IOLoop.current()
        completed = distributed.as_completed(loop=loop, with_results=True, raise_errors=raises)
        completed.add(Refused("k", refusal))
        return await asyncio.wait_for(completed.__anext__(), 30)

    with patched("distributed.client:as_completed._track_future"):
        if raises:
            with pytest.raises(type(refusal)) as caught:
                asyncio.run(run())
            assert caught.value is refusal
        else:
            future, (_, error, _) = asyncio.run(run())
            assert (future.status, error) == ("error", refusal)
