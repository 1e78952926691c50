"""Detached messages through a Box, as multiples of pickle and an HMAC.

The one rule: what seals and opens, and what it is compared with, take turns in one run.

Sealed and opened is one number: serialize, decide, seal; then verify, decide, record in a log on
disk and build. Pickle and HMAC is ``dumps``, sign, verify, ``loads``. "First" is the first message
of a pair of keys that this process has not seen, with its two X25519.
"""

from __future__ import annotations

import hmac
import pickle
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from safeser import Box, Secret
from safeser.identities import make_identities
from verification.benchmarks import report

POLICY = """
safeser: 1
name: boxes
revision: 1
principals: {web: {}, engine: {}}
contexts:
  - name: tasks
    sender: web
    recipient: engine
    kinds: [data]
    transport: box
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
...
"""
_KEY = bytes(range(32))
_ABOUT = "tasks"


class Kind(NamedTuple):
    """Messages of one kind, the multiple that is the goal, and how many make one turn."""

    name: str
    make: Callable[[], Any]
    asked: float
    times: int


KINDS = (
    Kind("dict of 64 ints", lambda: {f"k{at}": at for at in range(64)}, 5, 200),
    Kind("array of 1 MB", lambda: np.arange(131_072.0), 1, 16),
    Kind("array of 32 MB", lambda: np.arange(4_194_304.0), 1 / 1.5, 1),
)


def _pickled(value: Any) -> Any:
    data = pickle.dumps(value, 5)
    signed = memoryview(hmac.digest(_KEY, data, "sha256") + data)
    assert hmac.compare_digest(hmac.digest(_KEY, signed[32:], "sha256"), signed[:32])
    return pickle.loads(signed[32:])


class Boxes:
    """The boxes of a pair of principals and those of a secret, with their logs."""

    def __init__(self, folder: Path) -> None:
        make_identities(folder, ["web", "engine"])
        (folder / "policy.yaml").write_text(POLICY)
        self.web, self.engine = (Box.at(folder, name) for name in ("web", "engine"))
        self.shared = Box.shared(Secret.generate(), audit=folder)

    def pair(self, value: Any, **how: Any) -> Any:
        data = self.web.seal(value, to="engine", about=_ABOUT, ttl=60, **how)
        return self.engine.open(data, about=_ABOUT).value

    def secret(self, value: Any) -> Any:
        return self.shared.open(self.shared.seal(value, about=_ABOUT, ttl=60), about=_ABOUT).value

    def first(self, value: Any) -> Any:
        for box in (self.web, self.engine):
            box._keys._known = None
        return self.pair(value)


def contest(kind: Kind, boxes: Boxes) -> report.Contest:
    value = kind.make()
    steps = {
        "pair": boxes.pair,
        "signed": partial(boxes.pair, signed=True),
        "shared": boxes.secret,
        "first": boxes.first,
        "pickle": _pickled,
    }

    def taken(step: Callable[[Any], Any]) -> float:
        """Return the median time of *step*."""
        found = []
        for _ in range(kind.times):
            start = perf_counter()
            made = step(value)
            found.append(perf_counter() - start)
            del made  # not while the clock runs
        return statistics.median(found)

    return report.Contest({name: partial(taken, step) for name, step in steps.items()})


def main() -> None:
    options = report.options(__doc__, rounds=9, only="")
    with tempfile.TemporaryDirectory(prefix="safeser-boxes-") as folder:
        boxes = Boxes(Path(folder) / "keys")
        held = {kind: contest(kind, boxes) for kind in KINDS if options.only in kind.name}
        report.hold(held.values(), options.rounds)
    names = ("pair", "signed", "shared", "first")
    lines = [
        [
            kind.name,
            each.micros("pickle"),
            each.micros("pair"),
            *(f"{each.ratio(name, 'pickle'):.2f}" for name in names),
            f"{kind.asked:.2g}",
        ]
        for kind, each in held.items()
    ]
    head = ("message", "pickle + HMAC (µs)", "box (µs)", *names, "asked of pair")
    report.show(head, lines)
    note = "the last five columns: median of the rounds' ratios to pickle + HMAC, sealed and opened"
    report.show_notes(note, rounds=options.rounds)


if __name__ == "__main__":
    main()
