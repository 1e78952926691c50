"""Forged scikit-learn estimators: loaded under the profile, and then used as if they were good.

The one rule it checks: whatever a forged state is, loading gives an estimator or a SafeserError,
and no use of what was loaded ends the process, hangs it, or is answered by anything but Python.

    python -m verification.fuzz.estimators FOLDER [--seconds 1800] [--case NUMBER]

A case is a fitted model, with one to three changes of its state (:mod:`verification.cases`).
"""

from __future__ import annotations

import os
import pickle
from typing import Any

# A forked child hangs in OpenMP if its parent has used threads of it, and must leave no processes.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", JOBLIB_MULTIPROCESSING="0")

import numpy as np
from sklearn.base import clone

from safeser import pickles
from safeser.errors import SafeserError
from verification.cases import Case, Tool, main
from verification.fuzz.forging import changed
from verification.fuzz.models import ROWS, TARGET, models

PROFILE = pickles.Profile.named("data", "numpy", "pandas", "scipy", "sklearn")

METHODS = (
    *("predict", "predict_proba", "predict_log_proba", "decision_function", "transform"),
    *("score_samples", "kneighbors", "radius_neighbors", "kneighbors_graph", "apply"),
    *("decision_path", "staged_predict", "get_leaf_indices", "query", "sample"),
    *("get_feature_names_out", "get_params", "get_metadata_routing", "get_depth", "get_n_leaves"),
    *("bic", "get_precision", "mahalanobis", "sparsify", "densify"),
)


def _is_own(value: Any) -> bool:
    return type(value).__module__.startswith("sklearn")


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


def run(data: bytes, buffers: Any) -> str:
    try:
        found = pickles.loads(data, buffers=buffers, profile=PROFILE)
    except SafeserError:
        return "refused"
    try:
        use(found)
    except MemoryError:
        return "exhausted"
    return "used"


def prepare(_: Any) -> Tool:
    known = models()
    print(f"{len(known)} models", flush=True)

    def make(number: int, chance: Any) -> Case:
        model = known[number % len(known)]
        strangers = [np.zeros((3, 2)), np.arange(5), *chance.sample(known, 3)]
        data, changes = changed(model, chance, strangers, _is_own)
        return Case(data, (), f"{type(model).__name__}: {'; '.join(changes)}")

    return Tool(make, run, patience=12)


if __name__ == "__main__":
    raise SystemExit(main(__doc__, prepare, state=".fuzz/estimators", seconds=1800))
