"""Profile sklearn: estimators come back as they were, fitted or not, and predict the same."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn import (
    cluster,
    decomposition,
    discriminant_analysis,
    dummy,
    ensemble,
    feature_extraction,
    feature_selection,
    gaussian_process,
    impute,
    kernel_ridge,
    linear_model,
    metrics,
    mixture,
    multiclass,
    multioutput,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from sklearn.calibration import CalibratedClassifierCV
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 - makes it importable
from sklearn.utils import check_random_state

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles import Profile, loads
from safeser.pickles.shims.sklearn import trees as sklearn_trees
from tests.pickles.forging import refused
from tests.samples import pickles_sklearn as forged

PROFILE = ("data", "numpy", "pandas", "scipy", "sklearn")
RNG = np.random.default_rng(0)
X = RNG.random((40, 4))
LABELS = np.array(["no", "yes"])[(X[:, 0] > 0.5).astype(int)]
THREE = np.digitize(X[:, 1], [0.3, 0.6])
Y = X @ [1.0, 2.0, 0.0, -1.0]


def rebuilt(value):
    return loads(pickle.dumps(value), profile=PROFILE)


def same(ours, theirs):
    if sparse.issparse(theirs):
        ours, theirs = ours.toarray(), theirs.toarray()
    if isinstance(theirs, list | tuple):
        return all(map(same, ours, theirs))
    if np.asarray(theirs).dtype.kind == "f":
        # Sums depend on how arrays lie in memory.
        return np.allclose(ours, theirs, equal_nan=True)
    return np.array_equal(ours, theirs)


CLASSIFIERS = [
    linear_model.SGDClassifier(loss="modified_huber", early_stopping=True, random_state=0),
    linear_model.Perceptron(), svm.LinearSVC(), svm.NuSVC(nu=0.2),
    svm.SVC(kernel="poly", decision_function_shape="ovo"),
    tree.ExtraTreeClassifier(max_leaf_nodes=5), ensemble.ExtraTreesClassifier(n_estimators=3),
    ensemble.GradientBoostingClassifier(n_estimators=2, init="zero", loss="exponential"),
    ensemble.BaggingClassifier(n_estimators=2),
    ensemble.StackingClassifier([("a", naive_bayes.GaussianNB())], cv=2),
    neighbors.KNeighborsClassifier(algorithm="brute", metric="cosine"),
    neighbors.RadiusNeighborsClassifier(radius=2.0), naive_bayes.MultinomialNB(),
    naive_bayes.BernoulliNB(), discriminant_analysis.LinearDiscriminantAnalysis(),
    discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1),
    neural_network.MLPClassifier((3,), max_iter=3, random_state=0),
    gaussian_process.GaussianProcessClassifier(optimizer=None),
    multiclass.OneVsOneClassifier(svm.LinearSVC()), dummy.DummyClassifier(),
    multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
    CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2, method="isotonic"),
]  # fmt: skip
REGRESSORS = [
    linear_model.LinearRegression(), linear_model.RidgeCV(), linear_model.Lasso(0.01),
    linear_model.ElasticNet(0.01), linear_model.Lars(), linear_model.BayesianRidge(),
    linear_model.HuberRegressor(), linear_model.SGDRegressor(random_state=0),
    linear_model.QuantileRegressor(solver="highs"),
    linear_model.RANSACRegressor(min_samples=5, random_state=0), svm.NuSVR(), svm.LinearSVR(),
    tree.DecisionTreeRegressor(max_depth=3),
    ensemble.GradientBoostingRegressor(n_estimators=2, loss="huber"),
    ensemble.HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=2),
    kernel_ridge.KernelRidge(kernel="rbf"),
    gaussian_process.GaussianProcessRegressor(optimizer=None),
    neural_network.MLPRegressor(hidden_layer_sizes=(3,), max_iter=3, solver="sgd", random_state=0),
    multioutput.MultiOutputRegressor(linear_model.Ridge()), dummy.DummyRegressor(),
]  # fmt: skip
TRANSFORMERS = [
    preprocessing.RobustScaler(), preprocessing.Normalizer(), preprocessing.PolynomialFeatures(),
    preprocessing.QuantileTransformer(n_quantiles=5), preprocessing.PowerTransformer(),
    preprocessing.KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"),
    preprocessing.OneHotEncoder(drop="first", sparse_output=False, dtype=np.float32),
    decomposition.PCA(2), decomposition.TruncatedSVD(2), decomposition.NMF(2, max_iter=1000),
    decomposition.FastICA(2, random_state=0), decomposition.KernelPCA(2, kernel="rbf"),
    decomposition.LatentDirichletAllocation(2, max_iter=2),
    cluster.MiniBatchKMeans(3, n_init=1), cluster.FeatureAgglomeration(2), impute.KNNImputer(),
    impute.IterativeImputer(max_iter=1), feature_selection.VarianceThreshold(),
    feature_selection.SelectFromModel(linear_model.LogisticRegression()),
    feature_selection.RFE(linear_model.LogisticRegression()),
    ensemble.RandomTreesEmbedding(n_estimators=2, max_depth=2),
    pipeline.make_union(preprocessing.StandardScaler(), decomposition.PCA(2)),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet():
    # Few iterations and small data are on purpose here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def check(estimator, method, X=X):
    got = rebuilt(estimator)
    assert type(got) is type(estimator)
    assert repr(got) == repr(estimator)
    assert got.__dict__.keys() == estimator.__dict__.keys()
    assert same(getattr(got, method)(X), getattr(estimator, method)(X))
    return got


TARGETS = {
    **{f"{at}-{type(made).__name__}": (made, THREE) for at, made in enumerate(TRANSFORMERS)},
    **{f"{at}-{type(made).__name__}": (made, LABELS) for at, made in enumerate(CLASSIFIERS)},
    **{f"{at}-{type(made).__name__}": (made, Y + 5) for at, made in enumerate(REGRESSORS)},
}


@pytest.mark.parametrize("name", TARGETS)
def test_estimators(name):
    estimator, target = TARGETS[name]
    assert repr(rebuilt(estimator)) == repr(estimator)
    if isinstance(estimator, multioutput.MultiOutputRegressor):
        target = np.c_[Y, -Y]
    classifies = target is LABELS and getattr(estimator, "loss", "") != "exponential"
    for fitted_to in (target, THREE) if classifies else (target,):
        got = check(estimator.fit(X, fitted_to), "transform" if target is THREE else "predict")
        if hasattr(estimator, "predict_proba"):
            assert same(got.predict_proba(X), estimator.predict_proba(X))


NAMES = np.array([["a", "x"], ["b", "y"], ["a", "y"]], object)
SETS = preprocessing.MultiLabelBinarizer(sparse_output=True)
TEXTS = ["a dog and a cat", "the cat sat", "a dog"]
#: What is fitted without a target, and then asked by *method*.
OTHERS = [
    (svm.OneClassSVM(), "predict", X),
    (ensemble.IsolationForest(n_estimators=2, random_state=0), "predict", X),
    (neighbors.LocalOutlierFactor(novelty=True), "predict", X),
    (neighbors.NearestNeighbors(), "kneighbors", X),
    (neighbors.KernelDensity(), "score_samples", X),
    (mixture.GaussianMixture(2, random_state=0), "predict", X),
    (mixture.BayesianGaussianMixture(n_components=2, max_iter=2, random_state=0), "predict", X),
    (cluster.MeanShift(), "predict", X), (cluster.DBSCAN(), "", X),
    (cluster.AgglomerativeClustering(), "", X),
    (feature_extraction.text.CountVectorizer(), "transform", TEXTS),
    (feature_extraction.text.HashingVectorizer(n_features=32), "transform", TEXTS),
    (feature_extraction.DictVectorizer(), "transform", [{"a": 1}, {"b": 2}]),
    (preprocessing.LabelBinarizer(sparse_output=True), "transform", LABELS),
    (SETS, "transform", [["a", "b"], ["c"]]),
    (preprocessing.OneHotEncoder(drop="if_binary"), "transform", NAMES),
]  # fmt: skip


@pytest.mark.parametrize(("estimator", "method", "given"), OTHERS)
def test_without_target(estimator, method, given):
    estimator.fit(given)
    if method:
        getattr(estimator, method)(given)  # some keep what they were asked
        check(estimator, method, given)
    else:
        assert same(rebuilt(estimator).labels_, estimator.labels_)


def test_a_random_state_inside():
    made = tree.DecisionTreeClassifier(random_state=check_random_state(3))
    assert rebuilt(made).random_state.randint(100) == made.random_state.randint(100)


def test_a_scorer():
    made = metrics.make_scorer(metrics.fbeta_score, beta=2)
    with pytest.raises(PolicyDenied, match="fbeta_score"):
        rebuilt(made)
    made = metrics.get_scorer("f1")
    assert rebuilt(made)._score_func is metrics.f1_score


def test_another_version_is_refused(monkeypatch):
    made = linear_model.Ridge()
    monkeypatch.setattr("sklearn.base.__version__", "0.9.0")
    data = pickle.dumps(made)
    with pytest.raises(PayloadError, match=r"scikit-learn 0\.9\.0"):
        loads(data, profile=PROFILE)


def test_no_field_shadows_code():
    """A field of an instance goes before what its class defines under that name."""
    profile = Profile.named("sklearn")
    for entry in profile.entries.values():
        if entry.role != "class" or not entry.fields:
            continue
        kind = profile.object_of(entry)
        for field in entry.fields:
            assert field.isidentifier()
            assert not field.startswith("__")
            assert not callable(getattr(kind, field, None)), (entry.name, field)


def test_a_vocabulary_that_grows_after_it_was_checked_is_refused():
    """The stream may add to a dict that it has handed over already; the estimator has a copy."""
    data = forged.forged(forged.WORDS)
    assert data.endswith(b"b.")
    late = b"\x8c\x03owlJ\xff\xff\xff\x7fs0."
    grown = 0
    for entry in range(60):
        # Without the frame, which would have to be longer.
        body = data[:2] + data[11:-1] + b"h" + bytes([entry]) + late
        try:
            # BUILD takes what the state holds, here and in C; the dict of it may grow on.
            assert "owl" not in loads(body, profile=PROFILE).vocabulary_
        except PayloadError as error:
            grown += error.rule == "pickle.late-growth"
    assert grown == 1


@pytest.mark.parametrize("build", ["tree", "metric", "search_tree"])
def test_what_is_built_already_is_not_built_again(build):
    refused("pickle.build-twice", getattr(sklearn_trees, build), None, object(), {})
    draft = sklearn_trees.Draft("sklearn.neighbors._kd_tree:KDTree", 1, 2, 3)
    refused("pickle.state", sklearn_trees.search_tree, None, draft, (1, 2))
