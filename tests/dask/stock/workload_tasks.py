"""Functions that a guarded client's user submits."""

from __future__ import annotations

import time


class Thing:
    """Nothing but a class: only a pickle can carry it."""


def greet(name):
    return f"hello {name}"


def divide(a, b):
    return a / b


def fail(x):
    raise ValueError(f"bad {x}")


def slow(x):
    time.sleep(0.1)
    return x


def warned(x):
    from distributed import warn

    warn("careful", category=RuntimeWarning)
    return x


_TRIED = []


def at_second_try():
    """Fail the first time that this worker is asked."""
    _TRIED.append(1)
    if len(_TRIED) == 1:
        raise ValueError("not yet")
    return 20
