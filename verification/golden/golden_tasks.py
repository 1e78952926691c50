"""Functions and classes that the workloads hand to workers by reference."""

from __future__ import annotations

import time
from typing import Any


class Custom(Exception):
    """An error of a program's own class, with two arguments."""

    def __init__(self, one: Any, two: Any) -> None:
        super().__init__(one, two)
        self.one, self.two = one, two


class Counter:
    """An actor."""

    n = 0

    def __init__(self, n: int = 0) -> None:
        self.n = n

    def increment(self, by: int = 1) -> int:
        self.n += by
        return self.n

    def fail(self) -> None:
        raise KeyError("of an actor")


def inc(x: int) -> int:
    return x + 1


def add(x: int, y: int) -> int:
    return x + y


def fail(x: Any) -> None:
    raise ValueError(f"no {x!r}")


def fail_by_own_class(x: Any) -> None:
    raise Custom(x, 2)


def fail_in_a_chain(x: Any) -> None:
    try:
        1 / 0  # noqa: B018
    except ZeroDivisionError as error:
        raise RuntimeError("chained") from error


def path_of(path: Any, x: Any) -> str:
    return str(path) + str(x)


def slow(x: Any) -> Any:
    time.sleep(0.2)
    return x


def warned(x: Any) -> Any:
    from distributed import print as printed
    from distributed import warn

    warn("careful", category=RuntimeWarning)
    printed("hello", x)
    return x


def log_event(x: Any) -> Any:
    from distributed import get_worker

    get_worker().log_event("golden", {"x": x})
    return x


def nested(n: int) -> int:
    from distributed import worker_client

    with worker_client() as client:
        return sum(client.gather(client.map(inc, range(n))))


def synchronized(n: Any) -> Any:
    from distributed import Lock, Semaphore

    with Lock("lock-of-a-task"):
        pass
    with Semaphore(max_leases=2, name="semaphore-of-a-task"):
        pass
    return n
