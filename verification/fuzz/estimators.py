"""Forged scikit-learn estimators: loaded under the profile, and then used as if they were good.

The one rule it checks: whatever a forged state is, loading gives an estimator or a SafeserError,
and no use of what was loaded ends the process, hangs it, or is answered by anything but Python.

    python -m verification.fuzz.estimators FOLDER [--seconds 1800] [--case NUMBER]

Each case is a number, from which it can be made again. Cases run in a child, which a crash ends;
the parent notes the case and goes on behind it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import pickle
import random
import time
from pathlib import Path
from typing import Any

# A forked child hangs in OpenMP if its parent has used threads of it, and must leave no processes.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", JOBLIB_MULTIPROCESSING="0")

import numpy as np

from safeser import pickles
from safeser.errors import SafeserError
from verification.fuzz.children import Runner
from verification.fuzz.forging import brief, forged
from verification.fuzz.models import ROWS, TARGET, models
from verification.fuzz.mutations import mutated

PROFILE = pickles.Profile.named("data", "numpy", "pandas", "scipy", "sklearn")

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


def _is_own(value: Any) -> bool:
    return type(value).__module__.startswith("sklearn")


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
                self.changes.append(f"{path}: {brief(value)} -> {brief(new)}")
                return new

            return made

        count = chance.choice((1, 1, 1, 2, 2, 3))
        chosen = chance.sample(places[at], min(count, len(places[at])))
        self.data, _ = forged(self.model, {path: change(path) for path in chosen}, _is_own)

    def __str__(self) -> str:
        return f"{type(self.model).__name__}: {'; '.join(self.changes)}"


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


def children(folder: Path, seconds: int, start: int) -> int:
    """Return 1 if something was found."""
    known = models()
    places = [forged(model, {}, _is_own)[1] for model in known]
    print(f"{len(known)} models, {sum(map(len, places))} places", flush=True)
    findings: list[dict[str, Any]] = []

    def found(number: int, ended: str) -> None:
        case = str(Case(number, known, places))
        findings.append({"case": number, "ended": ended, "what": case})
        print(f"{ended}: case {number}, {case}", flush=True)

    end = time.monotonic() + seconds
    runner = Runner(lambda number: run(number, known, places), found, start, end)
    while time.monotonic() < end:
        runner.one_child()
        state = {"next": runner.number, "totals": runner.totals, "findings": findings}
        (folder / "estimators.json").write_text(json.dumps(state, indent=1))
    print(dict(runner.totals), flush=True)
    return bool(findings)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=int, default=1800)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--case", type=int, help="run this one here, without a child")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.case is None:
        return children(options.folder, options.seconds, options.start)
    known = models()
    places = [forged(model, {}, _is_own)[1] for model in known]
    print(Case(options.case, known, places), flush=True)
    faulthandler.enable()
    print(run(options.case, known, places))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
