"""joblib calls that safeser refuses; prints how each ended as JSON. Argument: an address."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import joblib
import numpy as np

import safeser


class Reduced:
    """What only a pickle carries."""

    def __init__(self, size: int = 0) -> None:
        self.data = np.zeros(size)

    def __reduce__(self) -> Any:
        return Reduced, ()


class Locked:
    """What nothing carries; large enough for joblib to scatter it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __sizeof__(self) -> int:
        return 100_000


def nested(n: int) -> Any:
    return joblib.Parallel()(joblib.delayed(abs)(each) for each in (n, -n))


def ended(call: Any, *arguments: Any) -> str:
    try:
        with joblib.parallel_config("dask"):
            return f"returned {joblib.Parallel()(joblib.delayed(call)(each) for each in arguments)}"
    except Exception as error:
        return f"{type(error).__name__} {getattr(error, 'rule', '')}".strip()


def main() -> None:
    with safeser.Client(sys.argv[1], timeout=30) as client:
        # Where a backend has one thread, joblib calls functions here.
        client.wait_for_workers(2, timeout=60)
        told = {
            "result": ended(Reduced, 1, 2),
            "argument": ended(id, threading.Lock()),
            "scattered": ended(id, Locked()),
            "nested": ended(nested, 1),
            "raised": ended(int, "x"),
            "then": ended(abs, -1, -2),
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
