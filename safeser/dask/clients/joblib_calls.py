"""joblib's Dask backend: a call fails where its arguments or its result cannot be sent.

The one rule: each call that joblib submits gets one outcome. The backend that joblib ships gives a
call none in two cases (joblib 1.6, ``_dask.py``), and ``Parallel`` then waits for ever:
``_collect`` keeps the error of a failed future to itself, and what ``submit`` raises in the loop of
Dask's client is logged there.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

__all__ = ["register_backend"]


@cache
def register_backend() -> None:
    """Register a backend ``dask`` with joblib, where that is installed, that ends every call.

    It needs a client of Dask's, so the first client of a process registers it, once: importing
    joblib takes 35 ms and 2 MB, which a worker without clients does not spend.

    joblib's own backend makes or asks for a client when it is made itself, before this is called:
    that one has these methods from here on, too.
    """
    if find_spec("joblib") is None:
        return
    from joblib import register_parallel_backend  # noqa: PLC0415 - joblib is optional

    register_parallel_backend("dask", lambda **given: _backend()(**given))  # noqa: PLW0108 - imported when it is first used
    if "joblib._dask" in sys.modules:
        _backend()


@cache
def _backend() -> Any:
    """Return joblib's backend with methods that end every call."""
    from joblib._dask import DaskDistributedBackend  # noqa: PLC0415 - takes 20 ms

    # Releases before 1.5 submit by another name, and are left as they are.
    if hasattr(DaskDistributedBackend, "submit"):
        for name, method in (("submit", _submit), ("_collect", _collect)):
            setattr(DaskDistributedBackend, name, method)
    return DaskDistributedBackend


class _Ended(Future[Any]):
    """The outcome of a batch, with the method that joblib expects of asynchronous results."""

    get = Future.result


def _submit(self: Any, func: Any, callback: Callable[[Any], None]) -> Future[Any]:
    """Submit a batch of calls; *callback* gets its outcome, which may be an exception."""
    from joblib._utils import _TracebackCapturingWrapper  # noqa: PLC0415 - as above

    ended = _Ended()

    async def send() -> None:
        try:
            batch, tasks = await self._to_func_args(func)
            future = self.client.submit(
                _TracebackCapturingWrapper(batch),
                tasks=tasks,
                key=f"{batch!r}-{uuid4().hex}",
                **self.submit_kwargs,
            )
        except Exception as error:
            _end(ended, callback, error)
            return
        # In this order, since the future may be done.
        self._callbacks[future], self._results[future] = callback, ended
        self.waiting_futures.add(future)

    self.client.loop.add_callback(send)
    return ended


async def _collect(self: Any) -> None:
    """Hand the outcome of each batch to joblib, in the loop of Dask's client."""
    while self._continue:
        async for future, result in self.waiting_futures:
            outcome = result[1] if future.status == "error" else result
            _end(self._results.pop(future), self._callbacks.pop(future), outcome)
        await asyncio.sleep(0.01)


def _end(ended: Future[Any], callback: Callable[[Any], None], outcome: Any) -> None:
    if isinstance(outcome, BaseException):
        ended.set_exception(outcome)
    else:
        ended.set_result(outcome)
    callback(outcome)  # joblib raises an outcome that is an exception
