"""One fitted instance of every estimator that profile ``sklearn`` lists, and of some kinds of it.

The one rule: they are fitted on a few fixed rows, so that two processes make the same.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from safeser import pickles

__all__ = ["ROWS", "TARGET", "models"]

ROWS: Any = np.random.default_rng(0).random((24, 4))
TARGET: Any = (ROWS[:, 0] > 0.5).astype(int)
_TEXTS = ["a dog and a cat", "the cat sat", "a dog", "no cat"] * 6
_DICTS = [{"a": 1, "b": 2.0}, {"b": 3.0, "c": "x"}] * 12


def _kinds() -> Iterator[Any]:
    from sklearn import (
        ensemble,
        linear_model,
        multiclass,
        naive_bayes,
        neighbors,
        pipeline,
        svm,
        tree,
    )
    from sklearn import preprocessing as pre
    from sklearn.calibration import CalibratedClassifierCV

    yield linear_model.SGDClassifier(loss="log_loss", average=True)
    yield svm.SVC(probability=False, kernel="poly")
    yield svm.SVC(decision_function_shape="ovo", kernel="sigmoid")
    yield tree.DecisionTreeRegressor(max_depth=3)
    yield ensemble.GradientBoostingClassifier(n_estimators=2, init="zero", loss="exponential")
    yield neighbors.KNeighborsClassifier(algorithm="ball_tree", p=3, weights="distance")
    yield neighbors.KNeighborsClassifier(algorithm="brute", metric="cosine")
    yield neighbors.NearestNeighbors(algorithm="kd_tree", leaf_size=2)
    yield neighbors.LocalOutlierFactor(novelty=True)
    yield pre.OneHotEncoder(drop="first", sparse_output=False)
    yield pre.OneHotEncoder(handle_unknown="ignore")
    yield pre.OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    yield CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2, method="isotonic")
    yield multiclass.OneVsRestClassifier(linear_model.LogisticRegression())
    yield pipeline.make_pipeline(pre.StandardScaler(), linear_model.Ridge())


def _fitted(made: Any) -> Any:
    """Return *made*, fitted by what it accepts, or None."""
    three = np.digitize(ROWS[:, 1], [0.3, 0.6])
    tries: list[tuple[Any, ...]] = [
        (ROWS, three), (ROWS, TARGET), (ROWS, ROWS[:, 0] + 1), (ROWS, np.c_[TARGET, TARGET]),
        (ROWS, np.c_[ROWS[:, 0], ROWS[:, 1]]), (ROWS,), (ROWS[:, 0], ROWS[:, 1]), (TARGET,),
        (_TEXTS,), (_DICTS,), ([["a", "b"], ["c"]],),
    ]  # fmt: skip
    for given in tries:
        with contextlib.suppress(Exception):  # the next one may be what it takes
            return made.fit(*given)
    return None


def models() -> list[Any]:
    """Return them, those that the profile loads."""
    from sklearn.utils import all_estimators
    from sklearn.utils._test_common.instance_generator import _construct_instances

    found = []
    profile = pickles.Profile.named("data", "numpy", "pandas", "scipy", "sklearn")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = list(_kinds())
        for _, kind in all_estimators():
            with contextlib.suppress(Exception):  # some need packages that are not here
                made += list(_construct_instances(kind))[:2]
        for each in made:
            if hasattr(each, "random_state"):
                each.random_state = 0
            fitted = _fitted(each)
            with contextlib.suppress(Exception):  # not listed: nothing to forge
                pickles.loads(pickles.dumps(fitted), profile=profile)
                if fitted is not None:
                    found.append(fitted)
    return found
