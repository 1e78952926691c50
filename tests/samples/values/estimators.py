"""scikit-learn's estimators, of which compiled code trusts many a field."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from sklearn import (
    cluster,
    compose,
    datasets,
    ensemble,
    feature_extraction,
    feature_selection,
    impute,
    isotonic,
    linear_model,
    metrics,
    model_selection,
    multiclass,
    naive_bayes,
    neighbors,
    pipeline,
    preprocessing,
    svm,
    tree,
    utils,
)
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.neighbors import KDTree


def examples() -> dict[str, object]:
    points = np.random.default_rng(0).random((9, 3))
    labels = np.array([0, 1, 2] * 3)
    made: dict[str, object] = {}
    for estimator in (
        linear_model.LogisticRegression(max_iter=5),
        linear_model.SGDClassifier(max_iter=5),
        svm.SVC(),
        svm.SVR(),
        tree.DecisionTreeClassifier(),
        ensemble.RandomForestClassifier(n_estimators=2, max_depth=2),
        neighbors.KNeighborsClassifier(3, algorithm="kd_tree"),
        neighbors.KNeighborsClassifier(3, algorithm="brute"),
        neighbors.RadiusNeighborsClassifier(9.0),
        cluster.KMeans(2, n_init=1),
        preprocessing.OneHotEncoder(),
        preprocessing.OrdinalEncoder(),
        preprocessing.StandardScaler(),
        compose.ColumnTransformer([("a", preprocessing.MinMaxScaler(), [0, 1])]),
        pipeline.make_pipeline(preprocessing.FunctionTransformer(np.log1p), linear_model.Ridge()),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made[f"{len(made)}-{type(estimator).__name__}"] = estimator.fit(points, labels)
    made["words"] = feature_extraction.text.TfidfVectorizer().fit(["a cat", "the dog"])
    made["isotonic"] = isotonic.IsotonicRegression().fit(points[:, 0], points[:, 1])
    made["kd-tree"] = KDTree(points)
    made["bunch"] = utils.Bunch(data=points, names=["a", "b"])
    search = model_selection.GridSearchCV(linear_model.Ridge(), {"solver": ["svd", "lsqr"]}, cv=2)
    made["search"] = search.fit(points, labels)
    return made


_METHODS = (
    "predict", "predict_proba", "decision_function", "transform", "inverse_transform", "kneighbors",
    "radius_neighbors", "query", "apply", "decision_path",
)  # fmt: skip


def uses(value: object) -> Iterator[Callable[[], object]]:
    if not type(value).__module__.startswith("sklearn."):
        return
    points = np.random.default_rng(1).random((4, 3))
    for rows in (points, points[:, 0], points[:, :1], ["a dog", "bird"]):
        for name in _METHODS:
            yield lambda name=name, rows=rows: getattr(value, name)(rows)  # type: ignore[misc]  # both are bound
    yield lambda: value.get_feature_names_out()  # type: ignore[attr-defined]  # some have it
    yield lambda: value.partial_fit(points, [0, 1, 2, 0])  # type: ignore[attr-defined]  # some have it
    yield lambda: value.get_params()  # type: ignore[attr-defined]  # all estimators have it


X = np.random.default_rng(0).random((40, 4))
THREE = np.digitize(X[:, 1], [0.3, 0.6])
NAMED = np.array(["no", "yes"])[(X[:, 0] > 0.5).astype(int)]
ESTIMATORS = [
    linear_model.LogisticRegression(), linear_model.SGDClassifier(average=True, random_state=0),
    linear_model.RidgeClassifier(), linear_model.LassoCV(cv=2), linear_model.PoissonRegressor(),
    svm.SVC(kernel="poly"), svm.LinearSVC(), tree.DecisionTreeClassifier(max_leaf_nodes=5),
    ensemble.RandomForestRegressor(n_estimators=2), ensemble.AdaBoostClassifier(n_estimators=2),
    ensemble.GradientBoostingClassifier(n_estimators=2),
    ensemble.HistGradientBoostingClassifier(max_iter=1, min_samples_leaf=2),
    ensemble.VotingClassifier([("a", naive_bayes.GaussianNB()), ("b", svm.LinearSVC())]),
    neighbors.KNeighborsClassifier(algorithm="kd_tree"),
    neighbors.KNeighborsRegressor(algorithm="ball_tree", p=3), neighbors.NearestCentroid(),
    multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
    CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2), cluster.KMeans(2, n_init=1),
    pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
    model_selection.GridSearchCV(tree.DecisionTreeClassifier(), {"max_depth": [1, 2]}, cv=2),
    model_selection.GridSearchCV(
        linear_model.LogisticRegression(),
        {"class_weight": [None, "balanced"]},
        scoring="accuracy",
        cv=model_selection.ShuffleSplit(n_splits=2, random_state=0),
    ),
    compose.TransformedTargetRegressor(linear_model.Ridge(), func=np.log1p, inverse_func=np.expm1),
    pipeline.make_pipeline(
        compose.ColumnTransformer(
            [
                ("a", preprocessing.StandardScaler(), [0, 1]),
                ("b", preprocessing.OneHotEncoder(handle_unknown="ignore"), slice(2, 3)),
                ("c", preprocessing.FunctionTransformer(np.log1p), [3]),
            ],
            remainder="drop",
        ),
        impute.SimpleImputer(),
        feature_selection.SelectKBest(feature_selection.f_classif, k=2),
        tree.DecisionTreeClassifier(),
    ),
]  # fmt: skip


def others() -> Iterator[object]:
    """Yield more honest values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations and small data are on purpose here
        for estimator in ESTIMATORS:
            yield clone(estimator)
            yield estimator.fit(X, THREE if type(estimator) is not cluster.KMeans else None)
    texts = ["a dog and a cat", "the cat sat", "a dog"]
    yield feature_extraction.text.TfidfVectorizer(stop_words="english").fit(texts)
    yield preprocessing.LabelEncoder().fit(NAMED)
    yield preprocessing.OneHotEncoder(dtype=np.float32, sparse_output=False).fit(NAMED[:, None])
    frame = pd.DataFrame(X, columns=list("abcd"))
    yield preprocessing.StandardScaler().set_output(transform="pandas").fit(frame)
    yield from (model_selection.StratifiedKFold(3), metrics.get_scorer("f1"), datasets.load_iris())
