"""A scheduler that answers with code: ``python hostile_scheduler.py FOLDER``.

It speaks Dask's own protocol by distributed's own functions, and does what a client's metadata
``variant`` names. Each piece of code makes a file in FOLDER, named by the variant and the process
that ran it. Prints its addresses as JSON: the honest handshake's, then those whose is hostile.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import sys
from functools import partial

import msgpack
import numpy as np
from distributed.comm import listen
from distributed.comm.core import CommClosedError
from distributed.protocol.serialize import Serialized, ToPickle, serialize, to_serialize

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "."
HANDSHAKES = ("marked", "opaque", "typed")


class Evil:
    """Pickles as code that notes which process ran it."""

    def __init__(self, variant):
        self.variant = variant

    def __reduce__(self):
        code = f"import os; open(os.path.join({FOLDER!r}, '{self.variant}@%d' % os.getpid()), 'w')"
        return exec, (code,)


def evil(variant):
    return pickle.dumps(Evil(variant))


# -- forms of a payload ----------------------------------------------------------------------------


def marked(v):
    return ToPickle(Evil(v))


def opaque(v):
    return Serialized({"serializer": "pickle", "writeable": ()}, [evil(v)])


def typed(v):
    header = {"serializer": "dask", "type": "x", "type-serialized": evil(v), "sub-header": {}}
    return Serialized(header, [b"x"])


def numpy_header(v, meta, frames, name="ndarray"):
    cls = {"ndarray": np.ndarray, "masked": np.ma.MaskedArray, "dict": dict}[name]
    header = {"serializer": "dask", "type": "x", "type-serialized": pickle.dumps(cls)}
    return Serialized({**header, "sub-header": meta}, frames)


def object_array(v):
    return numpy_header(v, {"pickle": True}, [evil(v)])


ARRAY = {"dtype": (0, "<i8"), "shape": (1,), "strides": (8,), "writeable": (True,)}
ONE = np.ones(1, "i8").tobytes()


def custom_dtype(v):
    return numpy_header(v, {**ARRAY, "dtype": (1, evil(v))}, [ONE])


def fill_value(v):
    meta = {"data-header": ARRAY, "nframes": 1, "fill-value": (True, evil(v))}
    return numpy_header(v, meta, [ONE], "masked")


def dict_type(v):
    meta = {"serializer": "dask", "type-serialized": evil(v), "simple": {}, "complex": {}}
    return numpy_header(v, meta, [], "dict")


def dict_nested(v):
    inner = {"serializer": "pickle", "writeable": ()}
    part = {"header": inner, "start": 0, "stop": 1}
    meta = {"serializer": "dask", "type-serialized": pickle.dumps(dict), "simple": {}}
    return numpy_header(v, {**meta, "complex": {"a": part}}, [evil(v)], "dict")


def collection(v):
    inner = {"serializer": "pickle", "writeable": ()}
    header = {"is-collection": True, "sub-headers": (inner,), "frame-lengths": (1,)}
    return Serialized({**header, "type-serialized": "list"}, [evil(v)])


def cuda(v):
    return Serialized({"serializer": "cuda", "type-serialized": evil(v)}, [b""])


def enum(v):
    return {
        "__Enum__": True,
        "name": "environ",
        "__module__": "distributed.utils",
        "__name__": "os",
    }


FORMS = {
    "marked": marked,
    "opaque": opaque,
    "typed": typed,
    "object-array": object_array,
    "custom-dtype": custom_dtype,
    "fill-value": fill_value,
    "dict-type": dict_type,
    "dict-nested": dict_nested,
    "collection": collection,
    "cuda": cuda,
}
#: What even a stock client with deserializers=['dask', 'msgpack'] refuses in replies.
REFUSED_BY_STOCK = {"reply.opaque", "reply.collection", "reply.cuda", "dataset.opaque"}


def failed(v, field, status="uncaught-error"):
    fine = pickle.dumps(ValueError("fine"))
    return {"status": status, "exception": fine, "traceback": None, field: evil(v)}


def boxed(data):
    return to_serialize(data)


#: Replies, by variant.
REPLIES = {
    **{f"reply.{name}": form for name, form in FORMS.items()},
    "error.exception": partial(failed, field="exception"),
    "error.traceback": partial(failed, field="traceback"),
    "queue.marked": marked,
    "events.marked": lambda v: [(0, marked(v))],
    "dataset.object-array": lambda v: [{"data": object_array(v), "keys": ["k"]}],
    "dataset.opaque": lambda v: [{"data": opaque(v), "keys": ["k"]}],
    "gather.object-array": lambda v: {"status": "OK", "data": {"k": object_array(v)}},
    "direct.typed": lambda v: {"status": "OK", "data": {"k": typed(v)}},
    "runspec.marked": marked,
    "run.bytes": lambda v: {"tcp://w:1": evil(v)},
    "run.error": lambda v: {"tcp://w:1": failed(v, "exception", "error")},
    "scheduler.error": lambda v: failed(v, "exception", "error"),
    "feed.marked": marked,
}

#: Elements of the client's stream, by variant.
ELEMENTS = {
    "stream.typed": lambda v: {"op": "event", "topic": "t", "event": (0, typed(v))},
    "stream.opaque": lambda v: {"op": "event", "topic": "t", "event": (0, opaque(v))},
    "stream.marked": lambda v: {"op": "event", "topic": "t", "event": (0, marked(v))},
    "stream.unknown-field": lambda v: {"op": "lost-data", "key": "x", "more": marked(v)},
    "stream.type": lambda v: {"op": "key-in-memory", "key": "k", "type": evil(v)},
    "stream.status": lambda v: failed(v, "exception", "error"),
    "stream.exception": lambda v: {
        **{"op": "task-erred", "key": "k", "traceback": None},
        "exception": boxed(evil(v)),
    },
    "stream.traceback": lambda v: {
        **{"op": "task-erred", "key": "k", "traceback": boxed(evil(v))},
        "exception": boxed(pickle.dumps(ValueError("fine"))),
    },
    "stream.bare-exception": lambda v: {
        **{"op": "task-erred", "key": "k", "traceback": evil(v), "exception": evil(v)},
    },
    "stream.warn-message": lambda v: warning(message=evil(v)),
    "stream.warn-category": lambda v: warning(category=evil(v)),
}

#: The operations whose reply is the variant's.
OPERATIONS = {
    "queue": "queue_get",
    "events": "events",
    "dataset": "publish_get",
    "gather": "gather",
    "direct": "get_data",
    "runspec": "get_runspec",
    "run": "broadcast",
    "scheduler": "run_function",
    "feed": "feed",
}


def warning(**evil_fields):
    plain = {"message": pickle.dumps("careful"), "category": pickle.dumps(UserWarning)}
    return {"op": "event", "topic": "warn", "event": (0, {**plain, **evil_fields})}


class Scheduler:
    def __init__(self):
        self.variant = ""
        self.stream = None
        self.address = ""

    async def handle(self, comm):
        try:
            while True:
                message = await comm.read()
                if isinstance(message, dict):
                    await self.answer(comm, message)
                    if message.get("op") == "register-client":
                        self.stream = comm
        except CommClosedError:
            comm.abort()

    async def answer(self, comm, message):
        op = message["op"]
        if op == "register-client":
            await comm.write([{"op": "stream-start"}])
            return
        if op == "set_metadata":
            self.variant = message["value"]
            answer = "OK"
        elif op == "identity":
            answer = self.identity()
        elif op == "who_has":
            answer = {"k": [self.address]}
        elif op == "get_metadata":
            answer = await self.metadata(message["keys"][0])
        elif op == OPERATIONS.get(self.variant.partition(".")[0]):
            answer = REPLIES[self.variant](self.variant)
        elif op == "gather":
            answer = {"status": "OK", "data": {"fine": boxed(np.arange(3))}}
        else:
            answer = "OK"
        await comm.write(answer)

    async def metadata(self, asked):
        if asked == "honest":
            await self.stream.write([{"op": "key-in-memory", "key": "fine", "type": None}])
            return 42
        if self.variant in ELEMENTS:
            await self.stream.write([ELEMENTS[self.variant](self.variant)])
            await self.stream.write([{"op": "event", "topic": "done", "event": (0, 1)}])
            return "OK"
        return REPLIES[self.variant](self.variant)

    def identity(self):
        return {
            **{"type": "Scheduler", "id": "s", "address": self.address, "services": {}},
            **{"started": 0.0, "n_workers": 0, "total_threads": 0, "total_memory": 0},
            "workers": {},
        }


def evil_in(listener, form):
    honest = listener.on_connection

    async def on_connection(comm, handshake_overrides=None):
        del handshake_overrides
        return await honest(comm, {"more": FORMS[form](f"handshake.{form}")})

    listener.on_connection = on_connection


async def main():
    scheduler = Scheduler()
    addresses = []
    for form in ("", *HANDSHAKES):
        listener = await listen("tcp://127.0.0.1:0", scheduler.handle, deserialize=False)
        if form:
            evil_in(listener, form)
        addresses.append(listener.contact_address)
    scheduler.address = addresses[0]
    print(json.dumps(addresses), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    assert msgpack, os  # imported before a hostile reply needs them
    assert serialize
    asyncio.run(main())
