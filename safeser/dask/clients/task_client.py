"""The client that a worker makes for its tasks (``worker_client``, ``get_client``)."""

from __future__ import annotations

from typing import Any

from distributed.client import Client

from safeser.dask.clients.sealing import Sealing

__all__ = ["TaskClient"]


class TaskClient(Sealing, Client):  # type: ignore[misc]  # distributed ships no types
    """Submits what tasks submit, and signs it as their worker."""

    def _graph_to_futures(self, expr: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        expr = self._as_sent(expr, actors=kwargs.get("actors"))
        return super()._graph_to_futures(expr, keys, *args, **kwargs)
