"""Tests that are coroutines, and a connection to a server on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import inspect

import pytest
from distributed.comm.core import connect


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own, for at most half a minute."""
    function = pyfuncitem.function
    if not inspect.iscoroutinefunction(function):
        return None
    names = inspect.signature(function).parameters
    arguments = {name: pyfuncitem.funcargs[name] for name in names}

    async def bounded() -> None:
        await asyncio.wait_for(function(**arguments), 30)

    asyncio.run(bounded())
    return True


@pytest.fixture
def connected(net):
    """Return what opens a connection to a server of a kind, and yields its listener and its end."""

    @contextlib.asynccontextmanager
    async def opened(server="Scheduler"):
        async with net.serving(server) as listener:
            comm = await connect(listener.contact_address, timeout=10, **net.arguments())
            try:
                yield listener, comm
            finally:
                comm.abort()

    return opened
