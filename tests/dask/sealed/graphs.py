"""The least that a graph must be for its author to write it out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Graph:
    """Tasks and annotations, as an expression of Dask's has them."""

    def __init__(
        self, tasks: Mapping[Any, Any], annotations: Mapping[str, Mapping[Any, Any]] | None = None
    ) -> None:
        self._tasks = tasks
        self._annotations = annotations or {}

    def __dask_graph__(self) -> Mapping[Any, Any]:
        return self._tasks

    def __dask_annotations__(self) -> Mapping[str, Mapping[Any, Any]]:
        return self._annotations
