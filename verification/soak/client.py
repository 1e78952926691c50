"""One client of the soak: job after job until it is told to end; a line of JSON for each.

``python -m verification.soak.client KIND ADDRESS SEED``. The one rule: it says what it saw. Whether
a failure is the fault of a blow that fell meanwhile is judged by the harness, which dealt the
blows.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import faulthandler
import gc
import re
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sized
from random import Random
from typing import Any

from distributed import Client, KilledWorker
from distributed.comm.core import CommClosedError

import safeser
from examples.demo.pipe import Pipe
from verification.soak import jobs

#: How often a job is begun anew after a blow, with the same values. Then it counts as lost.
ATTEMPTS = 8

#: What a client may see when a worker or its connection is gone, by class.
_BLOWS = (
    concurrent.futures.CancelledError, asyncio.CancelledError, KilledWorker, CommClosedError,
    ConnectionError,
)  # fmt: skip

#: The same by text: Dask has no class for it, or it crossed as data.
_BLOW_TEXTS = (
    "Worker holding Actor was lost", "Unable to contact Actor", "lost dependencies",
    "connection to scheduler", "Timed out trying to connect",
)  # fmt: skip

#: A shuffle whose worker is cut off says so in words of its phase; the reason is its cause.
_SHUFFLE = re.compile(r"P2P \w+ failed during (transfer|barrier|unpack) phase")
#: And one that was begun anew, since a worker in it was lost, of those that are behind.
_STALE = re.compile(r"run_id=\d+ (stale|invalid), got |No active shuffle with id=")
_CUT_OFF = ("CommClosedError", "StreamClosedError", "ConnectionRefused", "ConnectionReset")

#: How many kinds of objects the scheduler's inventory names.
_MOST_KINDS = 60

_BOOKS = {"code": jobs.CODE, "by tasks": jobs.BY_TASKS, "data": jobs.DATA}


def main(kind: str, address: str, seed: str) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    pipe = Pipe.of_this_process()
    ended = threading.Event()
    threading.Thread(target=_listen, args=(pipe, ended), daemon=True).start()
    random = Random(f"{kind} {seed}")
    book = _BOOKS[kind]
    if not address.startswith("safeser://"):
        book = {name: each for name, each in book.items() if name not in jobs.REFUSED}
    client, counted = None, False
    while not ended.is_set():
        if client is None or client.status not in ("running", "connecting"):
            client = _connect(kind, address, pipe)
            continue
        _one(random.choice(sorted(book)), book, client, random.getrandbits(64), pipe, ended)
        if not counted:
            counted = _tell_inventory(kind, client, pipe)
    if client is not None:
        _tell_inventory(kind, client, pipe)
        client.close()
    pipe.tell("done")


def _listen(pipe: Pipe, ended: threading.Event) -> None:
    for _ in pipe.commands():
        pass
    ended.set()


def _connect(kind: str, address: str, pipe: Pipe) -> Any:
    stock = not address.startswith("safeser://")
    # Stock Dask has no frames, errors nor scalars for who asks for data alone.
    families = None if stock or kind == "code" else ["dask", "msgpack"]
    begun = time.time()
    make = Client if stock else safeser.Client
    try:
        client = make(address, timeout=60, deserializers=families)
    except (OSError, TimeoutError, safeser.SafeserError) as error:
        pipe.tell("job", job="connect", outcome="failed", begun=begun, error=_text(error))
        time.sleep(1)
        return None
    client.soak_method = "tasks" if kind == "by tasks" else "p2p"
    return client


def inventory(dask_scheduler: Any) -> dict[str, int]:
    """Count what a scheduler holds: the lengths of its collections, and objects by class."""
    slots = {
        name for each in type(dask_scheduler).__mro__ for name in getattr(each, "__slots__", ())
    }
    held = {name: getattr(dask_scheduler, name, None) for name in slots | set(vars(dask_scheduler))}
    sizes = {f".{name}": len(each) for name, each in held.items() if isinstance(each, Sized)}
    gc.collect()
    kinds = Counter(f"{type(each).__module__}.{type(each).__name__}" for each in gc.get_objects())
    return {**sizes, **dict(kinds.most_common(_MOST_KINDS))}


def _tell_inventory(kind: str, client: Any, pipe: Pipe) -> bool:
    """Say what the scheduler holds, if this client may ask; it is where a growth would be seen."""
    if kind == "code":
        try:
            pipe.tell("inventory", counts=client.run_on_scheduler(inventory))
        except (*_BLOWS, TimeoutError):
            return False
    return True


def _one(name: str, book: Any, client: Any, seed: int, pipe: Pipe, ended: threading.Event) -> None:
    """Do one job until it is done; say what became of each attempt."""
    for attempt in range(ATTEMPTS):
        begun, tasks, text, during = time.time(), 0, "", False
        try:
            tasks = book[name](client, Random(f"{seed} {attempt}"))
            outcome = "done"
        except jobs.Wrong as error:
            outcome, text = "wrong", _text(error)
        except BaseException as error:
            outcome, text = judged(error), _text(error)
            during = is_cut_shuffle(error)
        if outcome == "disturbed" and attempt == ATTEMPTS - 1:
            outcome = "lost"
        if ended.is_set() and outcome != "wrong":
            return
        said = {"job": name, "outcome": outcome, "tasks": tasks, "begun": begun, "error": text}
        pipe.tell("job", **said, during=during)
        if outcome != "disturbed" or client.status not in ("running", "connecting"):
            return
        time.sleep(0.5)


def is_cut_shuffle(error: BaseException) -> bool:
    """Tell whether a shuffle failed because somebody in it was cut off while it went on."""
    text = "".join(traceback.format_exception(error))
    cut_off = bool(_SHUFFLE.search(str(error))) and any(reason in text for reason in _CUT_OFF)
    return cut_off or bool(_STALE.search(str(error)))


def judged(error: BaseException) -> str:
    """Return what became of a job that ended with *error*, as far as its client can tell."""
    if is_cut_shuffle(error):
        return "disturbed"
    if isinstance(error, _BLOWS) or any(text in str(error) for text in _BLOW_TEXTS):
        return "disturbed"
    if isinstance(error, KeyError) and str(error.args[0]).startswith(("safeser://", "tcp://")):
        return "disturbed"  # Dask's scheduler scatters to a worker that is gone when it is done
    return "lost" if isinstance(error, TimeoutError) else "failed"


def _text(error: BaseException) -> str:
    lines = traceback.format_exception(error, limit=-4)
    return "".join(lines)[-1500:]


if __name__ == "__main__":
    main(*sys.argv[1:])
