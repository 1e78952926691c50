"""What a test expects to be refused, by which rule, and what the refusal still refers to."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, FunctionType, ModuleType, TracebackType

import pytest

from safeser.errors import SafeserError

__all__ = ["refusal", "remembered"]

#: What every object reaches, or what only this test's own process has.
_EVERYWHERE = (ModuleType, FunctionType, type, FrameType, asyncio.AbstractEventLoop)


@contextmanager
def refusal(
    error: type[SafeserError], rule: str, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[SafeserError]]:
    """Expect *error* by *rule*, in whose text *match* is found."""
    with pytest.raises(error, match=match) as caught:
        yield caught
    assert caught.value.rule == rule


def remembered(error: BaseException, secret: bytes) -> list[object]:
    """Return the buffers with *secret* that *error*, its context or its traceback reaches."""
    found: list[object] = []
    seen: dict[int, object] = {}
    todo: list[object] = [error]
    while todo:
        one = todo.pop()
        if id(one) in seen or isinstance(one, _EVERYWHERE):
            continue
        seen[id(one)] = one
        if isinstance(one, TracebackType):
            todo += [one.tb_next, *one.tb_frame.f_locals.values()]
            continue
        if isinstance(one, bytes | bytearray | memoryview):
            with suppress(ValueError):  # a view that was released
                found += [one] * (secret in bytes(one))
        todo += gc.get_referents(one)
    return found
