"""Ask a cluster which policy and roster each of its processes decides by.

The one rule: one connection to the scheduler, as any client's; it is closed at the end.
"""

from __future__ import annotations

import asyncio

from distributed.core import rpc

from safeser.dask import drift
from safeser.dask.client import check_address
from safeser.dask.security import Security
from safeser.dask.settings import channel_for
from safeser.errors import ConfigError

__all__ = ["question"]


def question(address: str) -> list[drift.Statement]:
    """Return what the processes of the cluster at *address* say, the scheduler first.

    :raises ConfigError: if it is no address of safeser's, or does not answer.
    """
    check_address(address)
    channel_for("client")  # what is wrong with the settings is said before anything connects
    try:
        return asyncio.run(_asked(address))
    except OSError as error:
        raise ConfigError(
            f"the scheduler at {address} does not answer: {error}",
            rule="config.address",
            fix="Check the address, and that the scheduler runs.",
        ) from None


async def _asked(address: str) -> list[drift.Statement]:
    security = Security().narrowed(["msgpack"], scheduler_at=address.partition("://")[2])
    arguments = security.get_connection_args("client")
    async with rpc(address, connection_args=arguments, timeout=10) as scheduler:
        return await drift.ask(scheduler)
