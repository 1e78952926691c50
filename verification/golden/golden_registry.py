"""The workloads by their names, in the order in which they run."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["WORKLOADS", "Session", "Workload", "workload"]


class Session(NamedTuple):
    """What a workload runs with: a client, and a folder for its files."""

    client: Any
    folder: pathlib.Path


Workload = Callable[[Session], Any]
WORKLOADS: dict[str, Workload] = {}


def workload(function: Workload) -> Workload:
    """Make *function* the next workload."""
    WORKLOADS[function.__name__] = function
    return function
