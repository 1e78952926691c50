"""Calls of a client that are refused on a cluster; prints the error of each as JSON."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable
from typing import Any

import safeser


class Parcel:
    """Registered in the client's process alone."""

    def __init__(self) -> None:
        self.weight = 1


def error_of(call: Callable[[], Any]) -> dict[str, Any]:
    try:
        call()
    except Exception as error:
        shown = traceback.format_exception(error)
        return {"type": type(error).__name__, "text": str(error), "shown": "".join(shown)}
    return {"type": "", "text": "", "shown": ""}


def passed_on(client: safeser.Client) -> dict[str, Callable[[], Any]]:
    """Return calls that a worker refuses, of which the scheduler is told."""
    safeser.register_class(Parcel)
    return {
        "scatter": lambda: client.scatter(Parcel()),
        "scatter to all": lambda: client.scatter({"parcel": Parcel()}, broadcast=True),
    }


def main() -> None:
    said = {}
    families = ["dask", "msgpack"]
    with safeser.Client(n_workers=1, threads_per_worker=1, serializers=families) as client:
        for name, call in passed_on(client).items():
            print(f"--- {name}", file=sys.stderr, flush=True)
            said[name] = error_of(call)
        print("--- end", file=sys.stderr, flush=True)
    print(json.dumps(said))


if __name__ == "__main__":
    main()
