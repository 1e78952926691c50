"""Profile sklearn: estimators come back as they were, fitted or not, and predict the same."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles import Profile, loads

pytest.importorskip("sklearn")
from scipy import sparse
from sklearn import (
    cluster,
    compose,
    decomposition,
    discriminant_analysis,
    dummy,
    ensemble,
    feature_extraction,
    feature_selection,
    gaussian_process,
    impute,
    isotonic,
    kernel_ridge,
    linear_model,
    metrics,
    mixture,
    model_selection,
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

PROFILE = ("data", "numpy", "pandas", "scipy", "sklearn")
RNG = np.random.default_rng(0)
X = RNG.random((40, 4))
LABELS = np.array(["no", "yes"])[(X[:, 0] > 0.5).astype(int)]
THREE = np.digitize(X[:, 1], [0.3, 0.6])
Y = X @ [1.0, 2.0, 0.0, -1.0]


def rebuilt(value, *, protocol=5):
    return loads(pickle.dumps(value, protocol), profile=PROFILE)


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
    linear_model.LogisticRegression(),
    linear_model.SGDClassifier(average=True, random_state=0),
    linear_model.SGDClassifier(loss="log_loss", random_state=0),
    linear_model.SGDClassifier(loss="modified_huber", early_stopping=True, random_state=0),
    linear_model.Perceptron(),
    linear_model.RidgeClassifier(),
    svm.LinearSVC(),
    svm.SVC(),
    svm.SVC(kernel="poly", decision_function_shape="ovo"),
    svm.NuSVC(nu=0.2),
    tree.DecisionTreeClassifier(),
    tree.ExtraTreeClassifier(max_leaf_nodes=5),
    ensemble.RandomForestClassifier(n_estimators=3, oob_score=False),
    ensemble.ExtraTreesClassifier(n_estimators=3),
    ensemble.GradientBoostingClassifier(n_estimators=2),
    ensemble.GradientBoostingClassifier(n_estimators=2, init="zero", loss="exponential"),
    ensemble.HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=2),
    ensemble.AdaBoostClassifier(n_estimators=2),
    ensemble.BaggingClassifier(n_estimators=2),
    ensemble.VotingClassifier([("a", naive_bayes.GaussianNB()), ("b", svm.LinearSVC())]),
    ensemble.StackingClassifier([("a", naive_bayes.GaussianNB())], cv=2),
    neighbors.KNeighborsClassifier(),
    neighbors.KNeighborsClassifier(algorithm="ball_tree", p=3, weights="distance"),
    neighbors.KNeighborsClassifier(algorithm="brute", metric="cosine"),
    neighbors.RadiusNeighborsClassifier(radius=2.0),
    neighbors.NearestCentroid(),
    naive_bayes.GaussianNB(),
    naive_bayes.MultinomialNB(),
    naive_bayes.BernoulliNB(),
    discriminant_analysis.LinearDiscriminantAnalysis(),
    discriminant_analysis.QuadraticDiscriminantAnalysis(reg_param=0.1),
    neural_network.MLPClassifier((3,), max_iter=3, random_state=0),
    gaussian_process.GaussianProcessClassifier(optimizer=None),
    multiclass.OneVsRestClassifier(linear_model.LogisticRegression()),
    multiclass.OneVsOneClassifier(svm.LinearSVC()),
    CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2),
    CalibratedClassifierCV(naive_bayes.GaussianNB(), cv=2, method="isotonic"),
    dummy.DummyClassifier(),
    pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression()),
    model_selection.GridSearchCV(tree.DecisionTreeClassifier(), {"max_depth": [1, 2]}, cv=2),
    model_selection.GridSearchCV(
        linear_model.LogisticRegression(), {"C": [1.0, 2.0]}, scoring="accuracy", cv=2
    ),
]
REGRESSORS = [
    linear_model.LinearRegression(),
    linear_model.Ridge(),
    linear_model.RidgeCV(),
    linear_model.Lasso(0.01),
    linear_model.ElasticNet(0.01),
    linear_model.LassoCV(cv=2),
    linear_model.Lars(),
    linear_model.BayesianRidge(),
    linear_model.HuberRegressor(),
    linear_model.SGDRegressor(random_state=0),
    linear_model.PoissonRegressor(),
    linear_model.QuantileRegressor(solver="highs"),
    linear_model.RANSACRegressor(min_samples=5, random_state=0),
    svm.SVR(),
    svm.NuSVR(),
    svm.LinearSVR(),
    tree.DecisionTreeRegressor(max_depth=3),
    ensemble.RandomForestRegressor(n_estimators=2),
    ensemble.GradientBoostingRegressor(n_estimators=2),
    ensemble.GradientBoostingRegressor(n_estimators=2, loss="huber"),
    ensemble.HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=2),
    neighbors.KNeighborsRegressor(),
    kernel_ridge.KernelRidge(kernel="rbf"),
    gaussian_process.GaussianProcessRegressor(optimizer=None),
    neural_network.MLPRegressor(hidden_layer_sizes=(3,), max_iter=3, solver="sgd", random_state=0),
    multioutput.MultiOutputRegressor(linear_model.Ridge()),
    compose.TransformedTargetRegressor(linear_model.Ridge(), func=np.log1p, inverse_func=np.expm1),
    dummy.DummyRegressor(),
]
TRANSFORMERS = [
    preprocessing.StandardScaler(),
    preprocessing.MinMaxScaler(),
    preprocessing.RobustScaler(),
    preprocessing.Normalizer(),
    preprocessing.PolynomialFeatures(),
    preprocessing.QuantileTransformer(n_quantiles=5),
    preprocessing.PowerTransformer(),
    preprocessing.KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"),
    preprocessing.OneHotEncoder(handle_unknown="ignore"),
    preprocessing.OneHotEncoder(drop="first", sparse_output=False, dtype=np.float32),
    preprocessing.OrdinalEncoder(),
    preprocessing.FunctionTransformer(np.log1p),
    decomposition.PCA(2),
    decomposition.TruncatedSVD(2),
    decomposition.NMF(2, max_iter=1000),
    decomposition.FastICA(2, random_state=0),
    decomposition.KernelPCA(2, kernel="rbf"),
    decomposition.LatentDirichletAllocation(2, max_iter=2),
    cluster.KMeans(3, n_init=1),
    cluster.MiniBatchKMeans(3, n_init=1),
    cluster.FeatureAgglomeration(2),
    impute.SimpleImputer(),
    impute.KNNImputer(),
    impute.IterativeImputer(max_iter=1),
    feature_selection.VarianceThreshold(),
    feature_selection.SelectKBest(feature_selection.f_classif, k=2),
    feature_selection.SelectFromModel(linear_model.LogisticRegression()),
    feature_selection.RFE(linear_model.LogisticRegression()),
    ensemble.RandomTreesEmbedding(n_estimators=2, max_depth=2),
    compose.ColumnTransformer(
        [("a", preprocessing.StandardScaler(), [0, 1]), ("b", "passthrough", slice(2, 3))]
    ),
    pipeline.make_union(preprocessing.StandardScaler(), decomposition.PCA(2)),
]


def named(estimators):
    return [pytest.param(e, id=f"{at}-{type(e).__name__}") for at, e in enumerate(estimators)]


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


@pytest.mark.parametrize("estimator", named(CLASSIFIERS))
def test_classifiers(estimator):
    unfitted = rebuilt(estimator)
    assert repr(unfitted) == repr(estimator)
    for target in (LABELS, THREE):
        if getattr(estimator, "loss", "") == "exponential" and target is THREE:
            continue
        got = check(estimator.fit(X, target), "predict")
        if hasattr(estimator, "predict_proba"):
            assert same(got.predict_proba(X), estimator.predict_proba(X))


@pytest.mark.parametrize("estimator", named(REGRESSORS))
def test_regressors(estimator):
    target = np.c_[Y, -Y] if isinstance(estimator, multioutput.MultiOutputRegressor) else Y + 5
    check(estimator.fit(X, target), "predict")


@pytest.mark.parametrize("estimator", named(TRANSFORMERS))
def test_transformers(estimator):
    check(estimator.fit(X, THREE), "transform")


@pytest.mark.parametrize(
    ("estimator", "method"),
    [
        (svm.OneClassSVM(), "predict"),
        (ensemble.IsolationForest(n_estimators=2, random_state=0), "predict"),
        (neighbors.LocalOutlierFactor(novelty=True), "predict"),
        (neighbors.NearestNeighbors(), "kneighbors"),
        (neighbors.KernelDensity(), "score_samples"),
        (mixture.GaussianMixture(2, random_state=0), "predict"),
        (mixture.BayesianGaussianMixture(n_components=2, max_iter=2, random_state=0), "predict"),
        (cluster.MeanShift(), "predict"),
        (cluster.KMeans(2, n_init=1), "predict"),
    ],
    ids=lambda value: value if type(value) is str else type(value).__name__,
)
def test_without_target(estimator, method):
    check(estimator.fit(X), method)


@pytest.mark.parametrize("estimator", [cluster.DBSCAN(), cluster.AgglomerativeClustering()])
def test_clusters(estimator):
    assert same(rebuilt(estimator.fit(X)).labels_, estimator.labels_)


def test_text():
    texts = ["a dog and a cat", "the cat sat", "a dog"]
    for made in (
        feature_extraction.text.CountVectorizer(),
        feature_extraction.text.TfidfVectorizer(ngram_range=(1, 2), stop_words="english"),
        feature_extraction.text.HashingVectorizer(n_features=32),
    ):
        check(made.fit(texts), "transform", texts)
    check(feature_extraction.DictVectorizer().fit([{"a": 1}, {"b": 2}]), "transform", [{"a": 3}])


def test_labels():
    check(preprocessing.LabelEncoder().fit(LABELS), "transform", LABELS)
    check(preprocessing.LabelBinarizer(sparse_output=True).fit(LABELS), "transform", LABELS)
    sets = preprocessing.MultiLabelBinarizer(sparse_output=True).fit([["a", "b"], ["c"]])
    sets.transform([["a"]])
    check(sets, "transform", [["a", "c"]])


def test_categories_of_text():
    names = np.array([["a", "x"], ["b", "y"], ["a", "y"]], object)
    check(preprocessing.OneHotEncoder(drop="if_binary").fit(names), "transform", names)
    check(preprocessing.OrdinalEncoder().fit(names), "transform", names)


def test_isotonic():
    check(isotonic.IsotonicRegression().fit(X[:, 0], Y), "predict", X[:, 0])


def test_names_of_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abcd"))
    made = preprocessing.StandardScaler().set_output(transform="pandas").fit(frame)
    got = rebuilt(made)
    assert list(got.feature_names_in_) == list("abcd")
    assert got.transform(frame).equals(made.transform(frame))


def test_a_random_state_inside():
    made = tree.DecisionTreeClassifier(random_state=np.random.RandomState(3))
    assert rebuilt(made).random_state.randint(100) == made.random_state.randint(100)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(protocol):
    made = ensemble.RandomForestClassifier(n_estimators=2).fit(X, LABELS)
    assert same(rebuilt(made, protocol=protocol).predict(X), made.predict(X))


def test_out_of_band():
    made, buffers = neighbors.KNeighborsClassifier().fit(X, THREE), []
    data = pickle.dumps(made, 5, buffer_callback=buffers.append)
    got = loads(data, buffers=[buffer.raw() for buffer in buffers], profile=PROFILE)
    assert same(got.predict(X), made.predict(X))


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
