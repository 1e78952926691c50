"""The pytest fixture ``serialization_trace``.

Name this module in a ``conftest.py`` to have it: ``pytest_plugins = ["safeser.trace.fixture"]``.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from safeser.trace.records import Trace
from safeser.trace.tracing import trace_serialization

__all__ = ["serialization_trace"]


@pytest.fixture
def serialization_trace() -> Iterator[Trace]:
    """What the test serializes and deserializes in its own process."""
    with trace_serialization() as trace:
        yield trace
