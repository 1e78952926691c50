"""scikit-learn's estimators as typed trees: they predict the same, and forged ones never do."""

import contextlib
import dataclasses
import os
import warnings

import numpy as np
import pytest
from families_attack import FAMILIES, GRANT, LIMITS, mutate_all, sent_as, through

from safeser import families
from safeser.errors import PayloadError, SafeserError
from safeser.values import Grant

pytest.importorskip("sklearn")
from scipy import sparse
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
)
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.neighbors import BallTree, KDTree
from sklearn.utils import Bunch

from tests.pickles.forging import Called, New

X = np.random.default_rng(0).random((40, 4))
THREE = np.digitize(X[:, 1], [0.3, 0.6])
NAMED = np.array(["no", "yes"])[(X[:, 0] > 0.5).astype(int)]


@pytest.fixture(autouse=True)
def _quiet():
    # Few iterations and small data are on purpose here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def same(a, b):
    """Assert that two fields of estimators are the same, at any depth."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray) and a.dtype == object:
        assert a.shape == b.shape
        same(a.ravel().tolist(), b.ravel().tolist())
    elif isinstance(a, np.ndarray):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        assert a.tobytes() == b.tobytes()
    elif isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            same(a[key], b[key])
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for one, two in zip(a, b, strict=True):
            same(one, two)
    elif sparse.issparse(a):
        same(vars(a.tocoo()), vars(b.tocoo()))
    elif isinstance(a, (KDTree, BallTree)):
        same([np.asarray(part) for part in a.get_arrays()], [*map(np.asarray, b.get_arrays())])
    elif hasattr(a, "node_count") or not hasattr(a, "__dict__"):
        same(a.__reduce__()[1:], b.__reduce__()[1:]) if hasattr(a, "node_count") else None
    elif type(a).__module__.startswith("sklearn."):
        same(_fields(a), _fields(b))
    elif isinstance(a, (np.random.RandomState, np.random.Generator)):
        same(a.random(3), b.random(3))
    elif not callable(a):
        assert repr(a) == repr(b)


def _fields(x):
    # SciPy's function inside it is made anew from the steps.
    return {name: value for name, value in vars(x).items() if name != "f_"}


ESTIMATORS = [
    linear_model.LogisticRegression(),
    linear_model.SGDClassifier(average=True, random_state=0),
    linear_model.RidgeClassifier(),
    linear_model.LassoCV(cv=2),
    linear_model.PoissonRegressor(),
    svm.SVC(kernel="poly"),
    svm.LinearSVC(),
    tree.DecisionTreeClassifier(max_leaf_nodes=5),
    ensemble.RandomForestRegressor(n_estimators=2),
    ensemble.AdaBoostClassifier(n_estimators=2),
    ensemble.GradientBoostingClassifier(n_estimators=2),
    ensemble.HistGradientBoostingClassifier(max_iter=1, min_samples_leaf=2),
    ensemble.VotingClassifier([("a", naive_bayes.GaussianNB()), ("b", svm.LinearSVC())]),
    neighbors.KNeighborsClassifier(algorithm="kd_tree"),
    neighbors.KNeighborsRegressor(algorithm="ball_tree", p=3),
    neighbors.NearestCentroid(),
    multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
    CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2),
    cluster.KMeans(2, n_init=1),
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
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda x: type(x).__name__)
def test_estimators_predict_the_same(estimator):
    unfitted = clone(estimator)
    assert repr(through(unfitted)) == repr(unfitted)
    fitted = clone(estimator).fit(X, THREE if type(estimator) is not cluster.KMeans else None)
    got = through(fitted, frozen=False)
    same(fitted, got)
    assert np.array_equal(fitted.predict(X), got.predict(X))


def test_transformers():
    texts = ["a dog and a cat", "the cat sat", "a dog"]
    words = feature_extraction.text.TfidfVectorizer(stop_words="english").fit(texts)
    same(words, through(words))
    assert (through(words).transform(texts) != words.transform(texts)).nnz == 0
    labels = preprocessing.LabelEncoder().fit(NAMED)
    assert through(labels).inverse_transform([1]).tolist() == ["yes"]
    steps = isotonic.IsotonicRegression().fit(X[:, 0], X[:, 1])
    assert np.array_equal(through(steps).predict(X[:, 0]), steps.predict(X[:, 0]))
    encoder = preprocessing.OneHotEncoder(dtype=np.float32, sparse_output=False).fit(NAMED[:, None])
    assert through(encoder).dtype is np.float32


def test_names_of_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcd"))
    made = preprocessing.StandardScaler().set_output(transform="pandas").fit(frame)
    assert through(made).transform(frame).equals(made.transform(frame))


def test_objects_beside_estimators():
    folds = model_selection.StratifiedKFold(3)
    assert repr(through(folds)) == repr(folds)
    tree_ = KDTree(X)
    assert np.array_equal(through(tree_).query(X, 2)[1], tree_.query(X, 2)[1])
    assert through(metrics.get_scorer("f1"))._score_func is metrics.f1_score
    bunch = through(datasets.load_iris())
    assert type(bunch) is Bunch
    assert bunch.data.shape == (150, 4)


def test_searches_keep_parameters_that_are_no_numbers():
    grid = model_selection.GridSearchCV(
        linear_model.LogisticRegression(), {"class_weight": [None, "balanced"]}, cv=2
    ).fit(X, THREE)
    column = through(grid).cv_results_["param_class_weight"]
    assert isinstance(column, np.ma.MaskedArray)
    assert column.tolist() == [None, "balanced"]


def test_large_arrays_are_not_copied():
    made = neighbors.KNeighborsRegressor(algorithm="brute").fit(X, X[:, 0])
    header, frames = families.serialize(made, FAMILIES)
    assert any(np.shares_memory(made._fit_X.view("u1"), frame) for frame in frames)
    buffers = [bytearray(frame) for frame in frames]
    got = families.deserialize(header, buffers, GRANT)
    assert any(np.shares_memory(got._fit_X.view("u1"), buffer) for buffer in buffers)


def test_unaligned_frames():
    made = svm.SVC().fit(X, THREE)
    header, frames = families.serialize(made, FAMILIES)
    shifted = [memoryview(bytearray(b"x" + bytes(frame)))[1:] for frame in frames]
    got = families.deserialize(header, shifted, GRANT)
    same(made, got)
    assert all(part.flags.aligned for part in vars(got).values() if type(part) is np.ndarray)


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


@pytest.mark.parametrize(
    ("made", "said", "where"),
    [
        (Mine(), "that safeser lists", ""),
        (pipeline.make_pipeline(linear_model.Ridge(), Mine()), "of type .*:Mine", "steps"),
        (_marked(), "no such field: note", ""),
        (preprocessing.FunctionTransformer(_note), "func", ""),
        (pipeline.make_pipeline(linear_model.Ridge(), memory="x"), "only memory=None", ""),
        (linear_model.LogisticRegression(C="high"), "does not accept", ""),
        (linear_model.SGDClassifier(n_jobs=100_000), "too many threads", ""),
    ],
)
def test_what_is_not_listed_is_refused_by_name(made, said, where):
    with pytest.raises(PayloadError, match=said) as caught:
        families.serialize(made, FAMILIES)
    assert caught.value.rule == "families.cannot-serialize"
    assert where in caught.value.where


# -- forged --------------------------------------------------------------------------------------


def refused(header, frames):
    with pytest.raises(SafeserError) as caught:
        families.deserialize(header, frames, GRANT, limits=LIMITS)
    assert caught.value.rule.startswith(("families.", "value."))
    return caught.value


SVC = svm.SVC().fit(X, THREE)
KNN = neighbors.KNeighborsClassifier(algorithm="kd_tree").fit(X, THREE)
SGD = linear_model.SGDClassifier(random_state=0).fit(X, THREE)


@pytest.mark.parametrize(
    ("made", "field", "value"),
    [
        (SVC, "support_", SVC.support_ + 40),
        (SVC, "_n_support", SVC._n_support * 1000),
        (SVC, "_dual_coef_", SVC._dual_coef_[:, :-1].copy()),
        (SVC, "support_vectors_", SVC.support_vectors_[:-1]),
        (SVC, "_sparse", True),
        (SVC, "shape_fit_", (3, 3)),
        (KNN, "_y", KNN._y + 3),
        (KNN, "_y", KNN._y - 1),
        (KNN, "_fit_X", X[:5]),
        (KNN, "_tree", KDTree(X[:5])),
        (KNN, "_tree", "kd"),
        (KNN, "weights", np.log),
        (KNN, "n_jobs", 1 << 20),
        (KNN, "n_features_in_", 1 << 40),
        (KNN, "n_features_in_", -1),
        (SGD, "coef_", SGD.coef_[:, :2].copy()),
        (SGD, "predict", "shadowed"),
        (SGD, "__class__x", 1),
        (SGD, "classes_", b"raw"),
    ],
    ids=lambda x: x if type(x) is str else "",
)
def test_forged_fields(made, field, value):
    changed = clone(made)
    vars(changed).update(vars(made))
    vars(changed)[field] = value
    header, frames = sent_as("sklearn:estimator", changed)
    if field == "classes_":  # plain, and of no use: Python says so
        with pytest.raises((TypeError, ValueError, IndexError)):
            families.deserialize(header, frames, GRANT).predict(X)
    else:
        refused(header, frames)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("left_child", 1 << 40),
        ("left_child", -1),
        ("left_child", 0),
        ("right_child", -7),
        ("feature", 4),
        ("feature", -1),
    ],
)
def test_forged_nodes(name, value):
    made = tree.DecisionTreeClassifier(max_depth=3).fit(X, THREE)
    header, frames = families.serialize(made, FAMILIES)
    frames = [bytearray(frame) for frame in frames]
    nodes = next(frame for frame in frames if len(frame) == made.tree_.node_count * 64)
    dtype = made.tree_.__getstate__()["nodes"].dtype
    np.frombuffer(nodes, dtype)[name][0] = value
    assert refused(header, frames).rule == "value.sklearn"


def test_forged_search_tree():
    header, frames = families.serialize(KNN, FAMILIES)
    order = np.asarray(KNN._tree.get_arrays()[1])
    frames = [bytearray(frame) for frame in frames]
    (indexes,) = (frame for frame in frames if bytes(frame) == order.tobytes())
    np.frombuffer(indexes, order.dtype)[0] = 1 << 40
    assert refused(header, frames).rule == "value.sklearn"


def sent(x):
    header, frames = families.serialize(x, FAMILIES)
    return header, [bytes(frame) for frame in frames]


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (np.log1p, "families.class"),
        ([np.log1p], "families.class"),
        (linear_model.Ridge, "families.global"),
        (Called(os.system, "true"), "families.global"),
        (New(Mine, {}), "families.global"),
        (Called(linear_model.Ridge), "families.global"),
        (KDTree(X[:3]), "families.class"),
        (np.random.RandomState(1), "families.class"),
        (5, "families.class"),
    ],
    ids=lambda x: x if type(x) is str else type(x).__name__,
)
def test_what_is_no_estimator_is_refused(value, rule):
    assert refused(*sent_as("sklearn:estimator", value)).rule == rule


def test_functions_stand_in_listed_fields_only():
    made = preprocessing.FunctionTransformer(np.log1p)
    assert families.deserialize(*sent_as("sklearn:estimator", made), GRANT).func is np.log1p
    made.func, made.kw_args = None, {"a": np.log1p}
    assert "kw_args" in str(refused(*sent_as("sklearn:estimator", made)))
    # A Bunch travels as what it holds, and nothing else carries a function.
    with pytest.raises(PayloadError):
        families.serialize(Bunch(a=np.log1p), FAMILIES)


@families.register_class(name="mine:Keeping")
@dataclasses.dataclass
class Keeping:
    """A class of the host's own, which never meets a function."""

    kept: object


def test_no_class_of_the_hosts_stands_in_an_estimator():
    made = preprocessing.FunctionTransformer(np.log1p)
    made.func = Keeping(np.log1p)
    assert refused(*sent_as("sklearn:estimator", made)).rule == "families.global"


def test_another_version(monkeypatch):
    monkeypatch.setattr("sklearn.base.__version__", "0.9.0")
    error = refused(*sent_as("sklearn:estimator", linear_model.Ridge()))
    assert error.rule == "families.version"
    assert "0.9.0" in error.message


def test_a_bunch_holds_a_dict():
    header, frames = sent(Bunch(a=1))
    header["sub-headers"], frames[:] = [sent([1])[0]], sent([1])[1]
    assert refused(header, frames).rule == "families.child-type"


def test_arrays_alone_stand_beside_a_tree():
    made = linear_model.Ridge().fit(X, X[:, 0])
    for value, families_ in ((b"a" * 32, FAMILIES), (np.arange(4), ("pickle",))):
        header, frames = sent(made)
        inner, more = families.serialize(value, families_)
        header["sub-headers"][0], header["frame-lengths"][0] = inner, len(more)
        grant = Grant("test", ("dask", "msgpack", "pickle"), profiles=("data", "numpy"))
        with pytest.raises(PayloadError) as caught:
            families.deserialize(header, [*more, *frames[1:]], grant)
        assert caught.value.rule == "families.child-type"
    header, frames = sent(made)
    extra = sent(np.arange(3))
    header["sub-headers"].append(extra[0])
    header["frame-lengths"].append(1)
    assert refused(header, [*frames, *extra[1]]).rule == "families.buffers"


def test_numbers_are_not_repeated():
    header, frames = sent(linear_model.Ridge().fit(X, X[:, 0]))
    array = header["sub-headers"][0]
    assert array["sub-header"]["shape"] == [4]
    array["sub-header"].update(base=[1], writeable=False)
    frames[0] = frames[0][:8]
    assert "shape" in refused(header, frames).message


def use(made):
    for name in ("predict", "predict_proba", "transform", "kneighbors", "query", "apply"):
        if hasattr(made, name):
            with contextlib.suppress(
                AttributeError, TypeError, ValueError, IndexError, KeyError, ArithmeticError
            ):
                getattr(made, name)(X)
    repr(made)


def test_mutated():
    # Larger ones are mutated by verification.malformed.
    assert mutate_all(linear_model.Ridge().fit(X, X[:, 0]), use, every=11)[0] > 20
