"""scikit-learn's estimators, of which compiled code trusts many a field."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator


def examples() -> dict[str, object]:
    import numpy as np
    from sklearn import (
        cluster,
        compose,
        ensemble,
        feature_extraction,
        isotonic,
        linear_model,
        model_selection,
        neighbors,
        pipeline,
        preprocessing,
        svm,
        tree,
        utils,
    )
    from sklearn.neighbors import KDTree

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
    "predict",
    "predict_proba",
    "decision_function",
    "transform",
    "inverse_transform",
    "kneighbors",
    "radius_neighbors",
    "query",
    "apply",
    "decision_path",
)


def uses(value: object) -> Iterator[Callable[[], object]]:
    import numpy as np

    if not type(value).__module__.startswith("sklearn."):
        return
    points = np.random.default_rng(1).random((4, 3))
    for rows in (points, points[:, 0], points[:, :1], ["a dog", "bird"]):
        for name in _METHODS:
            yield lambda name=name, rows=rows: getattr(value, name)(rows)  # type: ignore[misc]  # both are bound
    yield lambda: value.get_feature_names_out()  # type: ignore[attr-defined]  # some have it
    yield lambda: value.partial_fit(points, [0, 1, 2, 0])  # type: ignore[attr-defined]  # some have it
    yield lambda: value.get_params()  # type: ignore[attr-defined]  # all estimators have it
