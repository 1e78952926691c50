"""scikit-learn's estimators whose fields would lead compiled code astray."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
from sklearn import linear_model, neighbors, pipeline, preprocessing, svm, tree
from sklearn.base import BaseEstimator, clone
from sklearn.neighbors import KDTree
from sklearn.utils import Bunch, check_random_state

from safeser import families
from tests.pickles.forging import Called, New
from tests.samples.typed import hostile, payload, replaced, sent, sent_as
from tests.samples.values.estimators import THREE, X


class Mine(BaseEstimator):
    """An estimator of the user's own."""

    def fit(self, X, y=None):
        return self


def _note(x):
    return x


def _marked():
    made = linear_model.Ridge()
    made.note = 1
    return made


@families.register_class(name="mine:Keeping")
@dataclasses.dataclass
class Keeping:
    """A class of the host's own, which never meets a function."""

    kept: object


UNSENT = [
    (Mine(), "that safeser lists"), (pipeline.make_pipeline(linear_model.Ridge(), Mine()), ":Mine"),
    (_marked(), "no such field: note"), (preprocessing.FunctionTransformer(_note), "func"),
    (pipeline.make_pipeline(linear_model.Ridge(), memory="x"), "only memory=None"),
    (linear_model.LogisticRegression(C="high"), "does not accept"),
    (linear_model.SGDClassifier(n_jobs=100_000), "too many threads"), (Bunch(a=_note), "function"),
]  # fmt: skip

SVC = svm.SVC().fit(X, THREE)
KNN = neighbors.KNeighborsClassifier(algorithm="kd_tree").fit(X, THREE)
SGD = linear_model.SGDClassifier(random_state=0).fit(X, THREE)

FIELDS = {
    "value.scipy": [
        (SVC, "support_", SVC.support_ + 40), (SVC, "shape_fit_", (3, 3)), (KNN, "_y", KNN._y + 3),
        (KNN, "_y", KNN._y - 1),
    ],
    "value.sklearn": [
        (SVC, "_n_support", SVC._n_support * 1000),
        (SVC, "_dual_coef_", SVC._dual_coef_[:, :-1].copy()),
        (SVC, "support_vectors_", SVC.support_vectors_[:-1]), (SVC, "_sparse", True),
        (KNN, "_fit_X", X[:5]), (KNN, "_tree", KDTree(X[:5])), (KNN, "_tree", "kd"),
        (KNN, "weights", np.log), (KNN, "n_jobs", 1 << 20), (KNN, "n_features_in_", -1),
        (SGD, "coef_", SGD.coef_[:, :2].copy()),
    ],
    "families.max-memory": [(KNN, "n_features_in_", 1 << 40)],
    "families.state": [(SGD, "predict", "shadowed"), (SGD, "__class__x", 1)],
}  # fmt: skip


NODES = [
    ("left_child", 1 << 40), ("left_child", -1), ("left_child", 0), ("right_child", -7),
    ("feature", 4), ("feature", -1),
]  # fmt: skip

NO_ESTIMATORS = {
    "families.class": [
        (np.log1p,), ([np.log1p],), (KDTree(X[:3]),), (check_random_state(1),), (5,),
    ],
    "families.global": [
        (linear_model.Ridge,), (Called(os.system, "true"),), (New(Mine, {}),),
        (Called(linear_model.Ridge),),
    ],
}  # fmt: skip


def field(made, name, value):
    """Return the payload of *made* with another value in one of its fields."""
    changed = clone(made)
    vars(changed).update(vars(made))
    vars(changed)[name] = value
    return estimator(changed)


def estimator(value):
    return sent_as("sklearn:estimator", value)


def node(name, value):
    """Return the payload of a tree whose first node says something else."""
    made = tree.DecisionTreeClassifier(max_depth=3).fit(X, THREE)
    header, frames = sent(made)
    at = next(n for n, frame in enumerate(frames) if len(frame) == made.tree_.node_count * 64)
    nodes = np.frombuffer(bytearray(frames[at]), made.tree_.__getstate__()["nodes"].dtype)
    nodes[name][0] = value
    return header, [*frames[:at], nodes.tobytes(), *frames[at + 1 :]]


def search_tree():
    header, frames = sent(KNN)
    order = np.array(KNN._tree.get_arrays()[1])
    at = frames.index(order.tobytes())
    order[0] = 1 << 40
    return header, [*frames[:at], order.tobytes(), *frames[at + 1 :]]


def transformer(**fields):
    """Return the payload of a transformer with functions and objects in its fields."""
    made = preprocessing.FunctionTransformer()
    vars(made).update(fields)
    return estimator(made)


def repeated():
    """Return the payload of an estimator whose numbers are one, seen four times."""
    header, frames = sent(RIDGE)
    header["sub-headers"][0]["sub-header"].update(base=[1], writeable=False)
    return header, [frames[0][:8], *frames[1:]]


def one_more():
    header, frames = sent(RIDGE)
    inner, more = sent(np.arange(3))
    header["sub-headers"].append(inner)
    header["frame-lengths"].append(1)
    return header, frames + more


RIDGE = linear_model.Ridge().fit(X, X[:, 0])
MISPLACED = {
    "value.sklearn": [search_tree(), transformer(kw_args={"a": np.log1p})],
    "families.global": [transformer(func=Keeping(np.log1p))],
    "families.child-type": [
        replaced(Bunch(a=1), 0, [1]), replaced(RIDGE, 0, b"a" * 32), repeated(),
    ],
    "families.buffers": [one_more()],
}  # fmt: skip
HOSTILE = [
    *hostile(field, FIELDS), *hostile(node, {"value.sklearn": NODES}),
    *hostile(estimator, NO_ESTIMATORS), *hostile(payload, MISPLACED),
]  # fmt: skip
