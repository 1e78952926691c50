"""Forged scikit-learn estimators: loaded under the profile, and then used as if they were good.

The one rule it checks: whatever a forged state is, loading gives an estimator or a SafeserError,
and no use of what was loaded ends the process, hangs it, or is answered by anything but Python.

    python -m tests.fuzz.estimators FOLDER [--seconds 1800] [--case NUMBER]

Each case is a number, from which it can be made again. Cases run in a child, which a crash ends;
the parent notes the case and goes on behind it.
"""

from __future__ import annotations

import argparse
import faulthandler
import io
import json
import os
import pickle
import random
import resource
import select
import signal
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

# A forked child hangs in OpenMP if its parent has used threads of it, and must leave no processes.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", JOBLIB_MULTIPROCESSING="0")

import numpy as np

from safeser import pickles
from safeser.errors import SafeserError
from tests.fuzz.models import ROWS, TARGET, models
from tests.fuzz.mutations import mutated

PROFILE = pickles.Profile.named("data", "numpy", "pandas", "scipy", "sklearn")
MEMORY = 6 << 30
PATIENCE = 12.0  # a case takes milliseconds
_PLAIN = (list, tuple, dict)
_DEEP = 3

METHODS = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "transform",
    "score_samples",
    "kneighbors",
    "radius_neighbors",
    "kneighbors_graph",
    "apply",
    "decision_path",
    "staged_predict",
    "get_leaf_indices",
    "query",
    "sample",
    "get_feature_names_out",
    "get_params",
    "get_metadata_routing",
    "get_depth",
    "get_n_leaves",
    "bic",
    "get_precision",
    "mahalanobis",
    "sparsify",
    "densify",
)


class Forger(pickle.Pickler):
    """Pickles an object with other parts at some *places*, which it also lists.

    :param places: (number of the reduction, path in it) to what makes the new value of the old.
    """

    def __init__(self, file: Any, places: dict[Any, Any]) -> None:
        super().__init__(file, 5)
        self.places = places
        self.seen: list[Any] = []
        self.count = 0

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type) or not type(value).__module__.startswith("sklearn"):
            return NotImplemented
        parts = list(value.__reduce_ex__(5))
        number, self.count = self.count, self.count + 1
        for at in (1, 2):
            if len(parts) > at and parts[at] is not None:
                parts[at] = self._changed(parts[at], (number, at))
        return tuple(parts)

    def _changed(self, value: Any, path: tuple[Any, ...]) -> Any:
        if len(path) > 2 and not (path[1] == 1 and isinstance(value, type)):
            self.seen.append(path)
            if path in self.places:
                return self.places[path](value)
        if len(path) >= 2 + _DEEP or not isinstance(value, _PLAIN) or len(value) > 50:
            return value
        if isinstance(value, dict):
            made = {key: self._changed(part, (*path, key)) for key, part in value.items()}
            return {key: part for key, part in made.items() if part is not Ellipsis}
        return type(value)(self._changed(part, (*path, at)) for at, part in enumerate(value))


def forged(model: Any, places: dict[Any, Any]) -> tuple[bytes, list[Any]]:
    file = io.BytesIO()
    forger = Forger(file, places)
    forger.dump(model)
    return file.getvalue(), forger.seen


class Case:
    """What one number stands for: a model, and one to three changes of it."""

    def __init__(self, number: int, known: list[Any], places: list[list[Any]]) -> None:
        chance = random.Random(number)
        at = number % len(known)
        self.model = known[at]
        self.changes: list[str] = []
        strangers = [np.zeros((3, 2)), np.arange(5), *chance.sample(known, 3)]

        def change(path: Any) -> Any:
            def made(value: Any) -> Any:
                new = ... if chance.random() < 0.06 else mutated(value, chance, strangers)
                self.changes.append(f"{path}: {_brief(value)} -> {_brief(new)}")
                return new

            return made

        count = chance.choice((1, 1, 1, 2, 2, 3))
        chosen = chance.sample(places[at], min(count, len(places[at])))
        self.data, _ = forged(self.model, {path: change(path) for path in chosen})

    def __str__(self) -> str:
        return f"{type(self.model).__name__}: {'; '.join(self.changes)}"


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array{value.shape} {value.dtype.char} {str(value.ravel()[:4])[:60]}"
    return (
        repr(value)[:80]
        if isinstance(value, int | float | str | list | tuple)
        else type(value).__name__
    )


def use(found: Any) -> None:
    """Do with *found* what somebody who was handed it does; Python's errors are fine."""
    tries: list[Any] = [lambda: repr(found), lambda: pickle.dumps(found), lambda: clone(found)]
    width = getattr(found, "__dict__", {}).get("n_features_in_", 4)
    widths = {4, width} if type(width) is int and 0 < width < 50 else {4}
    for rows in (np.resize(ROWS, (5, width)) for width in widths | {1, 6}):
        for name in METHODS:
            tries.append(lambda name=name, rows=rows: _call(found, name, rows))
        tries.append(lambda rows=rows: found.score(rows, TARGET[: len(rows)]))
        tries.append(lambda rows=rows: found.inverse_transform(found.transform(rows)))
        tries.append(lambda rows=rows: found.partial_fit(rows, TARGET[: len(rows)]))
    for attempt in tries:
        try:
            attempt()
        except MemoryError:
            raise
        except Exception:  # whatever Python answers is an answer
            continue


def _call(found: Any, name: str, rows: Any) -> None:
    made = getattr(found, name)
    for arguments in ((rows,), ()):
        try:
            answer = made(*arguments)
            if hasattr(answer, "__next__"):
                list(answer)
            elif hasattr(answer, "toarray") and np.prod(answer.shape) < 1 << 20:
                answer.toarray()
        except TypeError:
            continue
        return


def clone(found: Any) -> Any:
    from sklearn.base import clone as cloned

    return cloned(found)


def run(number: int, known: list[Any], places: list[list[Any]]) -> str:
    """Run one case, and return what became of it."""
    try:
        case = Case(number, known, places)
    except Exception:  # what cannot even be pickled is no case
        return "unpicklable"
    try:
        found = pickles.loads(case.data, profile=PROFILE)
    except SafeserError:
        return "refused"
    try:
        use(found)
    except MemoryError:
        return "exhausted"
    return "used"


def children(folder: Path, seconds: int, start: int) -> None:
    known = models()
    places = [forged(model, {})[1] for model in known]
    print(f"{len(known)} models, {sum(map(len, places))} places", flush=True)
    end, number, totals, findings = time.monotonic() + seconds, start, Counter[str](), []
    while time.monotonic() < end:
        number, ended, counts = _one_child(number, end, known, places)
        totals += counts
        if ended:
            case = str(Case(number, known, places))
            findings.append({"case": number, "ended": ended, "what": case})
            print(f"{ended}: case {number}, {case}", flush=True)
            number += 1
        state = {"next": number, "totals": totals, "findings": findings}
        (folder / "estimators.json").write_text(json.dumps(state, indent=1))
    print(dict(totals), flush=True)


def _one_child(
    start: int, end: float, known: list[Any], places: list[list[Any]]
) -> tuple[int, str, Counter[str]]:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _child(writing, start, end, known, places)
    os.close(writing)
    counts, number, left, ended = Counter[str](), start, b"", ""
    while True:
        ready, _, _ = select.select([reading], [], [], PATIENCE)
        if not ready:
            ended = "hung"
            os.kill(child, signal.SIGKILL)
            break
        got = os.read(reading, 1 << 16)
        if not got:
            break
        *lines, left = (left + got).split(b"\n")
        for line in lines:
            text, _, what = line.decode().partition(" ")
            number = int(text) + 1
            counts[what] += 1
            if what in ("exhausted", "broken"):
                print(f"{what}: case {text}", flush=True)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    if not ended and os.WIFSIGNALED(status):
        ended = signal.Signals(os.WTERMSIG(status)).name
    return number, ended, counts


def _child(writing: int, start: int, end: float, known: list[Any], places: list[list[Any]]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    sys.stdout = io.StringIO()
    for number in range(start, start + 2000):
        try:
            what = run(number, known, places)
        except Exception as error:  # loading raised something that is no SafeserError
            print(f"case {number}: {type(error).__name__}: {error}", file=sys.stderr)
            what = "broken"
        os.write(writing, f"{number} {what}\n".encode())
        if time.monotonic() > end:
            break
    os._exit(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=int, default=1800)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this one here, without a child")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.case is None:
        children(options.folder, options.seconds, options.start)
        return
    known = models()
    places = [forged(model, {})[1] for model in known]
    print(Case(options.case, known, places), flush=True)
    faulthandler.enable()
    print(run(options.case, known, places))


if __name__ == "__main__":
    main()
