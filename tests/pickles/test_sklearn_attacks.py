"""Profile sklearn, attacked: what compiled code would trust is checked, and nothing is called."""

from __future__ import annotations

import io
import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles import loads
from safeser.pickles.shims.sklearn import trees as sklearn_trees

pytest.importorskip("sklearn")
from scipy import sparse
from sklearn import (
    cluster,
    dummy,
    ensemble,
    feature_extraction,
    feature_selection,
    impute,
    isotonic,
    linear_model,
    multiclass,
    neighbors,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from sklearn._loss import _loss
from sklearn.metrics import DistanceMetric
from sklearn.tree._tree import Tree

PROFILE = ("data", "numpy", "scipy", "sklearn")
X = np.random.default_rng(0).random((30, 3))
LABELS = (X[:, 0] > 0.5).astype(int)


class Forger(pickle.Pickler):
    """Pickles what *change* returns for an object's reduction, at any depth."""

    def __init__(self, file, change):
        super().__init__(file, 5)
        self.change = change

    def reducer_override(self, value):
        if isinstance(value, type) or not type(value).__module__.startswith("sklearn"):
            return NotImplemented
        return self.change(value, value.__reduce_ex__(4))


def forged(value, change=lambda value, parts: parts, **fields):
    """Return a pickle of *value* with other *fields* (Ellipsis: without), changed by *change*."""

    def all_changes(inner, parts):
        if inner is value and fields:
            state = {k: v for k, v in {**parts[2], **fields}.items() if v is not ...}
            parts = (*parts[:2], state, *parts[3:])
        return change(inner, parts)

    file = io.BytesIO()
    Forger(file, all_changes).dump(value)
    return file.getvalue()


def refused(data, match=None):
    with pytest.raises(PayloadError, match=match):
        loads(data, profile=PROFILE)


@pytest.fixture(scope="module", autouse=True)
def _quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


TREE = tree.DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, LABELS)
FOREST = ensemble.RandomForestClassifier(n_estimators=2).fit(X, LABELS)


def with_tree(**changes):
    """Forge the inner state of a decision tree; callables change a copy of the nodes."""

    def change(value, parts):
        if type(value) is not Tree:
            return parts
        made, args, state = parts[:3]
        state = {**state, "nodes": state["nodes"].copy()}
        for name, part in changes.items():
            if name == "args":
                args = part
            elif callable(part):
                part(state["nodes"])
            else:
                state[name] = part
        return made, args, {k: v for k, v in state.items() if v is not ...}

    return forged(TREE, change)


def setting(name, at, value):
    def change(nodes):
        nodes[name][at] = value

    return change


def swapped(nodes):
    nodes["left_child"][0], nodes["right_child"][0] = nodes["left_child"][0], nodes["left_child"][0]


NODES = TREE.tree_.node_count
BAD_TREES = {
    "child beyond": {"nodes_": setting("left_child", 0, NODES)},
    "child far": {"nodes_": setting("right_child", 0, 1 << 40)},
    "child negative": {"nodes_": setting("left_child", 0, -5)},
    "child of itself": {"nodes_": setting("left_child", 0, 0)},
    "circle": {"nodes_": setting("right_child", 1, 0)},
    "two parents": {"nodes_": swapped},
    "feature beyond": {"nodes_": setting("feature", 0, 3)},
    "feature far": {"nodes_": setting("feature", 0, 1 << 40)},
    "feature negative": {"nodes_": setting("feature", 0, -2)},
    "leaf with a child": {"nodes_": setting("right_child", NODES - 1, 1)},
    "half a leaf": {"nodes_": setting("left_child", 0, -1)},
    "depth": {"max_depth": 0},
    "depth of text": {"max_depth": "3"},
    "count": {"node_count": NODES + 1},
    "no nodes": {"node_count": 0},
    "values": {"values": np.zeros((NODES, 1, 3))},
    "values of objects": {"values": np.zeros((NODES, 1, 2), object)},
    "values short": {"values": np.zeros((1, 1, 2))},
    "nodes of another type": {"nodes": np.zeros(NODES, "i8")},
    "field missing": {"values": ...},
    "field more": {"extra": 1},
    "features": {"args": (1, np.array([2]), 1)},
    "features zero": {"args": (0, np.array([2]), 1)},
    "classes": {"args": (3, np.array([9]), 1)},
    "classes none": {"args": (3, np.array([0]), 1)},
    "outputs": {"args": (3, np.array([2]), 2)},
    "outputs many": {"args": (3, np.array([2]), 1 << 40)},
    "grown on more features": {"args": (4, np.array([2]), 1)},
}


@pytest.mark.parametrize("changes", BAD_TREES.values(), ids=BAD_TREES)
def test_forged_trees_are_refused(changes):
    assert loads(with_tree(), profile=PROFILE).predict(X).shape == (30,)
    refused(with_tree(**changes))


@given(st.data())
def test_whatever_tree_is_accepted_predicts(data):
    def change(nodes):
        for _ in range(data.draw(st.integers(1, 3))):
            name = data.draw(st.sampled_from(["left_child", "right_child", "feature"]))
            at = data.draw(st.integers(0, NODES - 1))
            nodes[name][at] = data.draw(st.integers(-3, NODES + 1))

    try:
        got = loads(with_tree(nodes_=change), profile=PROFILE)
    except PayloadError:
        return
    assert got.predict(X).shape == (30,)
    assert got.decision_path(X).shape == (30, NODES)


def test_a_tree_belongs_to_its_estimator():
    narrow = tree.DecisionTreeClassifier().fit(X[:, :2], LABELS)
    refused(forged(TREE, n_features_in_=2), "features")
    refused(forged(TREE, n_features_in_=...), "features")
    refused(forged(TREE, n_features_in_="3"))
    refused(forged(TREE, tree_=None), "tree")
    refused(forged(narrow, tree_=TREE.tree_), "features")


def test_stages_of_boosting():
    made = ensemble.GradientBoostingClassifier(n_estimators=2).fit(X, LABELS)
    three = ensemble.GradientBoostingClassifier(n_estimators=2).fit(X, np.arange(30) % 3)
    narrow = ensemble.GradientBoostingClassifier(n_estimators=2).fit(X[:, :2], LABELS)
    many = tree.DecisionTreeRegressor().fit(X, np.c_[LABELS, LABELS])
    several = np.empty((1, 1), object)
    several[0, 0] = many
    loads(forged(made), profile=PROFILE)
    loads(forged(three), profile=PROFILE)
    for fields in (
        {"estimators_": three.estimators_},
        {"estimators_": narrow.estimators_},
        {"estimators_": several},
        {"estimators_": made.estimators_.ravel()},
        {"estimators_": np.empty((1, 1), object)},
        {"estimators_": list(made.estimators_)},
        {"n_trees_per_iteration_": 3},
        {"n_trees_per_iteration_": True},
        {"init_": TREE},
        {"init_": dummy.DummyRegressor().fit(X, np.c_[LABELS, LABELS])},
        {"init_": None},
    ):
        refused(forged(made, **fields))
    refused(forged(three, init_=made.init_), "constant")
    refused(forged(three, _loss=made._loss), "constant")


def test_histogram_boosting():
    made = ensemble.HistGradientBoostingRegressor(max_iter=1, min_samples_leaf=2).fit(X, X[:, 0])
    narrow = ensemble.HistGradientBoostingRegressor(max_iter=1).fit(X[:, :1], X[:, 0])
    loads(forged(made), profile=PROFILE)
    (part,) = made._predictors[0]
    nodes = part.nodes

    def changed(**fields):
        other = nodes.copy()
        for name, value in fields.items():
            other[name][0] = value
        return other

    for bad in (
        changed(left=len(nodes)),
        changed(left=0),
        changed(right=1 << 31),
        changed(feature_idx=3),
        changed(feature_idx=-1),
        changed(is_categorical=1),
        nodes[:0],
        np.zeros(3),
    ):
        refused(
            forged(made, lambda v, p, bad=bad: (*p[:2], {**p[2], "nodes": bad}) if v is part else p)
        )
    for fields in (
        {"_preprocessor": preprocessing.StandardScaler()},
        {"_bin_mapper": narrow._bin_mapper},
        {"_bin_mapper": None},
        {"n_features_in_": 2},
        {"_predictors": [[TREE]]},
        {"_predictors": [None]},
    ):
        refused(forged(made, **fields))
    refused(forged(made._bin_mapper, bin_thresholds_=[]))


SVC = svm.SVC().fit(X, LABELS)
HELD = len(SVC.support_)
BAD_MACHINES = {
    "support beyond": {"support_": np.full(HELD, 30, "i4")},
    "support below": {"support_": np.full(HELD, -1, "i4")},
    "support short": {"support_": SVC.support_[1:]},
    "counts": {"_n_support": np.array([HELD, HELD], "i4")},
    "counts below": {"_n_support": np.array([HELD + 1, -1], "i4")},
    "more classes": {"_n_support": np.array([HELD, 0, 0], "i4")},
    "one class": {"_n_support": np.array([HELD], "i4")},
    "vectors short": {"support_vectors_": SVC.support_vectors_[1:]},
    "vectors narrow": {"support_vectors_": SVC.support_vectors_[:, 1:]},
    "vectors flat": {"support_vectors_": SVC.support_vectors_.ravel()},
    "duals short": {"_dual_coef_": SVC._dual_coef_[:, 1:]},
    "duals none": {"_dual_coef_": SVC._dual_coef_[:0]},
    "intercept": {"_intercept_": np.zeros(0)},
    "probabilities": {"_probA": np.zeros(1)},
    "probabilities missing": {"_probA": ..., "_probB": ...},
    "classes": {"classes_": np.arange(5)},
    "shape": {"shape_fit_": (1, 3)},
    "sparse": {"_sparse": True},
    "kernel of code": {"kernel": len},
    "kernel unknown": {"kernel": "none"},
    "kernel precomputed": {"kernel": "precomputed"},
}


@pytest.mark.parametrize("fields", BAD_MACHINES.values(), ids=BAD_MACHINES)
def test_forged_support_vector_machines_are_refused(fields):
    with pytest.raises((PayloadError, PolicyDenied)):
        loads(forged(SVC, **fields), profile=PROFILE)


def test_machines_of_one_class_and_for_regression():
    for made in (svm.OneClassSVM().fit(X), svm.SVR().fit(X, LABELS)):
        loads(forged(made), profile=PROFILE)
        refused(forged(made, _n_support=np.array([1, 1], "i4")))
    gram = svm.SVC(kernel="precomputed").fit(X @ X.T, LABELS)
    assert (loads(forged(gram), profile=PROFILE).predict(X @ X.T) == gram.predict(X @ X.T)).all()
    refused(forged(svm.SVC().fit(sparse.csr_array(X), LABELS)), "sparse")


def test_neighbours():
    made = neighbors.KNeighborsClassifier().fit(X, LABELS)
    several = neighbors.KNeighborsClassifier().fit(X, np.c_[LABELS, LABELS])
    other = neighbors.KDTree(X[:10])
    for fields in (
        {"_y": np.full(30, 2)},
        {"_y": np.full(30, -1)},
        {"_y": LABELS[1:]},
        {"_y": LABELS.astype(float)},
        {"_fit_X": X[1:]},
        {"_fit_X": X[:, 1:]},
        {"_fit_X": X.astype(object)},
        {"n_samples_fit_": 5},
        {"n_features_in_": ...},
        {"_tree": other},
        {"_tree": TREE},
        {"classes_": np.zeros((2, 2))},
        {"weights": len},
    ):
        with pytest.raises((PayloadError, PolicyDenied)):
            loads(forged(made, **fields), profile=PROFILE)
    refused(forged(several, _y=LABELS), "labels")
    refused(forged(several, _y=np.full((30, 2), 2)), "index")
    density = neighbors.KernelDensity().fit(X)
    refused(forged(density, tree_=neighbors.KDTree(X[:, :1])), "search tree")


@pytest.mark.parametrize("kind", [neighbors.KDTree, neighbors.BallTree])
def test_the_nodes_of_a_search_tree_are_not_believed(kind):
    made = kind(X, leaf_size=3)
    made.query(X[:2])
    got = loads(forged(made), profile=PROFILE)
    assert got.get_tree_stats() == made.get_tree_stats()
    assert (got.query(X[:2], 3)[1] == made.query(X[:2], 3)[1]).all()

    def change(at, part):
        def swap(value, parts):
            if type(value) is not kind:
                return parts
            state = list(parts[2])
            state[at] = part
            return (*parts[:2], tuple(state))

        return forged(made, swap)

    for at, part in (
        (1, np.full(30, 1 << 50)),
        (2, np.zeros(1)),
        (3, np.zeros((2, 1, 9))),
        (6, 1 << 60),
        (7, -1),
        (8, 1.0),
        (10, 1 << 40),
        (0, X.astype("f4")),
        (0, X[0]),
        (0, X[:0]),
        (4, 0),
        (11, None),
        (12, np.ones(3)),
    ):
        refused(change(at, part))


def test_metrics():
    for name in ("euclidean", "manhattan", "chebyshev", "canberra"):
        got = loads(forged(DistanceMetric.get_metric(name)), profile=PROFILE)
        assert (got.pairwise(X) == DistanceMetric.get_metric(name).pairwise(X)).all()
    power = DistanceMetric.get_metric("minkowski", p=3, dtype=np.float32)
    assert type(loads(forged(power), profile=PROFILE)) is type(power)
    refused(forged(DistanceMetric.get_metric("minkowski", p=3, w=np.ones(3))))
    for denied in (
        DistanceMetric.get_metric("mahalanobis", V=np.eye(3)),
        DistanceMetric.get_metric("pyfunc", func=np.sum),
    ):
        with pytest.raises(PolicyDenied):
            loads(forged(denied), profile=PROFILE)


KMEANS = cluster.MiniBatchKMeans(2, n_init=1).fit(X)
ONE_HOT = preprocessing.OneHotEncoder(drop="first").fit(LABELS.reshape(-1, 1))
WORDS = feature_extraction.text.CountVectorizer().fit(["a dog", "the cat"])
SETS = preprocessing.MultiLabelBinarizer().fit([["a"], ["b"]])
DICTS = feature_extraction.DictVectorizer().fit([{"a": 1}])
SGD = linear_model.SGDClassifier().fit(X, LABELS)
TERMS = preprocessing.PolynomialFeatures().fit(X)
STACK = ensemble.StackingRegressor([("a", linear_model.Ridge())], cv=2).fit(X, LABELS)
STEPS = isotonic.IsotonicRegression().fit(X[:, 0], LABELS)
BAD_FIELDS = {
    "centres narrow": (KMEANS, {"cluster_centers_": KMEANS.cluster_centers_[:, 1:]}),
    "centres none": (KMEANS, {"cluster_centers_": KMEANS.cluster_centers_[:0]}),
    "counts": (KMEANS, {"_counts": np.zeros(1)}),
    "threads": (KMEANS, {"_n_threads": 100_000}),
    "no threads": (KMEANS, {"_n_threads": 0}),
    "jobs": (FOREST, {"n_jobs": 100_000}),
    "width": (ONE_HOT, {"_n_features_outs": [0]}),
    "width of text": (ONE_HOT, {"_n_features_outs": None}),
    "dropped": (ONE_HOT, {"_drop_idx_after_grouping": np.array([7], object)}),
    "unsorted": (ONE_HOT, {"categories_": [np.array([1, 0])]}),
    "not a number": (ONE_HOT, {"categories_": [np.array([np.nan, 0.0])]}),
    "grouped": (ONE_HOT, {"_infrequent_enabled": True}),
    "fewer categories": (ONE_HOT, {"categories_": [], "_drop_idx_after_grouping": None}),
    "flat categories": (ONE_HOT, {"categories_": [np.zeros((2, 2))]}),
    "word beyond": (WORDS, {"vocabulary_": {"dog": 0, "cat": 1 << 40}}),
    "word below": (WORDS, {"vocabulary_": {"dog": -1}}),
    "word of text": (WORDS, {"vocabulary_": {"dog": "0"}}),
    "pattern for ever": (WORDS, {"token_pattern": "(a+)+b"}),
    "pattern long": (WORDS, {"token_pattern": "a" * 1000}),
    "tokens by code": (WORDS, {"tokenizer": len}),
    "set beyond": (SETS, {"_cached_dict": {"a": 9}}),
    "name beyond": (DICTS, {"vocabulary_": {"a": 5}}),
    "coefficients": (SGD, {"coef_": np.zeros((1, 1))}),
    "no coefficients": (SGD, {"coef_": np.zeros(())}),
    "texts for billions": (SGD, {"n_features_in_": (1 << 31) - 1}),
    "names for billions": (KMEANS, {"_n_features_out": 1 << 40}),
    "names for less than none": (KMEANS, {"_n_features_out": -1}),
    "names for text": (KMEANS, {"_n_features_out": "9"}),
    "terms for billions": (TERMS, {"n_output_features_": 1 << 40}),
    "stacked for billions": (STACK, {"_n_feature_outs": [1, 1 << 40]}),
    "steps": (STEPS, {"X_thresholds_": np.zeros(0)}),
    "other steps": (STEPS, {"y_thresholds_": np.zeros(1)}),
    "hash to nothing": (feature_extraction.FeatureHasher(), {"n_features": 0}),
    "a folder": (pipeline.make_pipeline(SGD), {"memory": "/tmp/cache"}),
    "unknown field": (SGD, {"fit": 1}),
    "method": (SGD, {"predict": "x"}),
    "dunder": (SGD, {"__class__": 1}),
    "impossible parameter": (SGD, {"alpha": -1.0}),
    "no version": (SGD, {"_sklearn_version": ...}),
    "version of numbers": (SGD, {"_sklearn_version": 1}),
    "function by itself": (
        preprocessing.FunctionTransformer(),
        {"func": feature_selection.f_classif},
    ),
    "type elsewhere": (SGD, {"alpha": np.float64}),
    "array type": (WORDS, {"dtype": np.ndarray}),
}


@pytest.mark.parametrize(("made", "fields"), BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_forged_fields_are_refused(made, fields):
    loads(forged(made), profile=PROFILE)
    with pytest.raises((PayloadError, PolicyDenied)):
        loads(forged(made, **fields), profile=PROFILE)


def test_functions_stand_only_where_they_are_listed():
    with pytest.raises(PolicyDenied, match="eval"):
        loads(forged(preprocessing.FunctionTransformer(), func=eval), profile=PROFILE)
    refused(forged(pipeline.make_pipeline("passthrough"), steps=[("a", np.log1p)]), "steps")


def test_a_vocabulary_that_grows_after_it_was_checked_is_refused():
    """The stream may add to a dict that it has handed over already; the estimator has a copy."""
    data = forged(WORDS)
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


def test_objects_of_other_classes_are_no_values():
    holder = impute.SimpleImputer()
    refused(forged(holder, fill_value=np.float64), "fill_value")
    deep = []
    for _ in range(70):
        deep = [deep]
    refused(forged(holder, fill_value=deep), "deep")
    refused(forged(holder, lambda _, parts: (*parts[:2], {**parts[2], 3: 1})), "no name")
    structured = np.zeros(1, [("a", object)])
    with pytest.raises((PayloadError, PolicyDenied)):
        loads(forged(holder, fill_value=structured), profile=PROFILE)


def test_an_estimator_without_its_state_is_no_value(asm):
    name = "sklearn.linear_model._ridge:Ridge"
    for body in (asm.new(name), asm.build(asm.new(name), b"N"), asm.new(name, asm.number(1))):
        refused(asm.pickle(body))
    begun = asm.new(name) + b"\x94"
    refused(asm.pickle(asm.tuple(begun, b"h\x00")))
    hinge = "sklearn.linear_model._sgd_fast:Hinge"
    assert type(loads(asm.pickle(asm.call(hinge)), profile=PROFILE)).__name__ == "Hinge"
    refused(asm.pickle(asm.call(hinge, asm.number(1), asm.number(1))))
    refused(asm.pickle(asm.call(hinge, asm.text("x"))))
    multinomial = asm.name("sklearn._loss._loss:CyHalfMultinomialLoss")
    maker = "sklearn._loss._loss:__pyx_unpickle_CyHalfMultinomialLoss"
    known = asm.number(_loss.CyHalfMultinomialLoss().__reduce__()[1][1])
    assert loads(asm.pickle(asm.call(maker, multinomial, known, b"N")), profile=PROFILE)
    refused(asm.pickle(asm.call(maker, multinomial, known, asm.list())))
    refused(asm.pickle(asm.call(maker, multinomial, asm.number(1), b"N")))


def test_one_versus_rest_counts_rows_by_what_is_inside():
    """An inner model with two rows of coefficients made indexes beyond the last sample."""
    several = np.c_[LABELS, 1 - LABELS]
    inner = linear_model.LogisticRegression()
    made = multiclass.OneVsRestClassifier(inner).fit(X, several)
    assert (loads(forged(made), profile=PROFILE).predict(X) == made.predict(X)).all()
    made.estimators_[0].coef_ = np.ones((2, 3))
    refused(forged(made), "one-versus-rest")
    refused(forged(multiclass.OneVsRestClassifier(svm.SVC()).fit(X, several)), "one-versus-rest")


@pytest.mark.parametrize("build", ["tree", "metric", "search_tree"])
def test_what_is_built_already_is_not_built_again(build):
    with pytest.raises(PayloadError, match="built twice"):
        getattr(sklearn_trees, build)(None, object(), {})


def test_a_search_tree_has_thirteen_parts():
    draft = sklearn_trees.Draft("sklearn.neighbors._kd_tree:KDTree", 1, 2, 3)
    with pytest.raises(PayloadError, match="differs from scikit-learn's"):
        sklearn_trees.search_tree(None, draft, (1, 2))
