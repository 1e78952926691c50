"""The steps of a program that tests run, one after the other, whether or not one of them fails.

Programs print what :func:`taken` returns, and the tests compare it step by step. What outlives a
program on its cluster has a name by :func:`own`.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

Step = Callable[[Any], Any]


def own(name: str) -> str:
    """Return a key, or the name of a variable, that no other test has on this cluster."""
    return os.environ["KEY_PREFIX"] + name


_STEPS: list[Step] = []


def step(function: Step) -> Step:
    """Make *function*, which gets the client, the next step."""
    _STEPS.append(function)
    return function


def taken(client: Any) -> dict[str, Any]:
    """Return what came out of each step by its name, or its error as text."""
    out: dict[str, Any] = {}
    for one in _STEPS:
        begun = time.monotonic()
        try:
            out[one.__name__] = one(client)
        # What fails is what the test wants to hear of, whatever it is.
        except BaseException as error:
            traceback.print_exc()
            out[one.__name__] = f"{type(error).__name__}: {error}"
        print(f"{one.__name__}: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    return out
