"""Estimators in pickles: what compiled code trusts and sizes that nothing holds, by their rule.

The one rule: a row is an honest, fitted estimator with other fields. The sizes were found by
forging estimators and using them (verification/fuzz/estimators.py): a number that took gigabytes
for each row, or a loop that did not end.
"""

from __future__ import annotations

import io
import pickle
import warnings

import numpy as np
from scipy import sparse
from sklearn import (
    cluster,
    decomposition,
    dummy,
    ensemble,
    feature_extraction,
    feature_selection,
    impute,
    isotonic,
    kernel_approximation,
    linear_model,
    multiclass,
    naive_bayes,
    neighbors,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from sklearn._loss import _loss
from sklearn.metrics import DistanceMetric
from sklearn.neural_network import MLPClassifier
from sklearn.tree._tree import Tree

from tests.samples.opcodes import build, call, name, new, value

X = np.random.default_rng(0).random((30, 3))
LABELS = (X[:, 0] > 0.5).astype(int)
HUGE, FAR = (1 << 31) - 1, 1 << 40


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


def fitted(made, *given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations and odd data are on purpose
        return made.fit(*given)


TREE = tree.DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, LABELS)
FOREST = ensemble.RandomForestClassifier(n_estimators=2).fit(X, LABELS)


def with_tree(**changes):
    """Forge the inner state of a decision tree; callables change a copy of the nodes."""

    def change(value, parts):
        if type(value) is not Tree:
            return parts
        made, args, state = parts[:3]
        state = {**state, "nodes": state["nodes"].copy()}
        for field, part in changes.items():
            if field == "args":
                args = part
            elif callable(part):
                part(state["nodes"])
            else:
                state[field] = part
        return made, args, {k: v for k, v in state.items() if v is not ...}

    return forged(TREE, change)


def setting(name, at, value):
    def change(nodes):
        nodes[name][at] = value

    return change


def swapped(nodes):
    nodes["left_child"][0], nodes["right_child"][0] = nodes["left_child"][0], nodes["left_child"][0]


NODES = TREE.tree_.node_count
KMEANS = cluster.MiniBatchKMeans(2, n_init=1).fit(X)
ONE_HOT = preprocessing.OneHotEncoder(drop="first").fit(LABELS.reshape(-1, 1))
WORDS = feature_extraction.text.CountVectorizer().fit(["a dog", "the cat"])
SETS = preprocessing.MultiLabelBinarizer().fit([["a"], ["b"]])
DICTS = feature_extraction.DictVectorizer().fit([{"a": 1}])
SGD = linear_model.SGDClassifier().fit(X, LABELS)
PARTS = decomposition.IncrementalPCA(2).fit(X)
TERMS = preprocessing.PolynomialFeatures().fit(X)
STACK = ensemble.StackingRegressor([("a", linear_model.Ridge())], cv=2).fit(X, LABELS)
STEPS = isotonic.IsotonicRegression().fit(X[:, 0], LABELS)
TERMS_OF_3 = preprocessing.PolynomialFeatures(3).fit(X)
BOTH = np.c_[LABELS, LABELS]
STAGES = ensemble.GradientBoostingClassifier(n_estimators=2).fit(X, LABELS)
STAGES_OF_3 = ensemble.GradientBoostingClassifier(n_estimators=2).fit(X, np.arange(30) % 3)
NARROW = ensemble.GradientBoostingClassifier(n_estimators=2).fit(X[:, :2], LABELS)
NARROW_TREE = tree.DecisionTreeClassifier().fit(X[:, :2], LABELS)
SEVERAL = np.empty((1, 1), object)
SEVERAL[0, 0] = tree.DecisionTreeRegressor().fit(X, BOTH)
_histogram = ensemble.HistGradientBoostingRegressor
HISTOGRAM = _histogram(max_iter=1, min_samples_leaf=2).fit(X, X[:, 0])
NARROW_HISTOGRAM = _histogram(max_iter=1).fit(X[:, :1], X[:, 0])
((PREDICTOR,),) = HISTOGRAM._predictors
SVC = svm.SVC().fit(X, LABELS)
HELD = len(SVC.support_)
NEIGHBOURS = neighbors.KNeighborsClassifier().fit(X, LABELS)
NEIGHBOURS_OF_2 = neighbors.KNeighborsClassifier().fit(X, BOTH)
DENSITY = neighbors.KernelDensity().fit(X)
HOLDER = impute.SimpleImputer()
AGGLOMERATED = cluster.FeatureAgglomeration(2).fit(X)


def histogram(nodes=None, **fields):
    """Forge the nodes of a tree of histogram boosting, or fields of its first node."""
    if nodes is None:
        nodes = PREDICTOR.nodes.copy()
        for field, content in fields.items():
            nodes[field][0] = content

    def change(made, parts):
        return (*parts[:2], {**parts[2], "nodes": nodes}) if made is PREDICTOR else parts

    return forged(HISTOGRAM, change)


def searched(kind, at, part):
    """Forge one part of a search tree's state."""
    made = kind(X, leaf_size=3)
    made.query(X[:2])

    def swap(inner, parts):
        if type(inner) is not kind:
            return parts
        state = list(parts[2])
        state[at] = part
        return (*parts[:2], tuple(state))

    return forged(made, swap)


def deep(levels):
    made = []
    for _ in range(levels):
        made = [made]
    return made


def one_versus_rest():
    """An inner model with two rows of coefficients made indexes beyond the last sample."""
    inner = linear_model.LogisticRegression()
    made = multiclass.OneVsRestClassifier(inner).fit(X, np.c_[LABELS, 1 - LABELS])
    made.estimators_[0].coef_ = np.ones((2, 3))
    return made


def voting(classes, wrap=lambda made: made):
    inner = wrap(naive_bayes.GaussianNB())
    made = ensemble.VotingClassifier([("a", inner)]).fit(X, LABELS)
    held = made.estimators_[0]
    (held.steps[-1][1] if hasattr(held, "steps") else held).classes_ = np.array(classes)
    return forged(made)


SEARCHING = neighbors.KDTree, neighbors.BallTree
RIDGE, HINGE = "sklearn.linear_model._ridge:Ridge", "sklearn.linear_model._sgd_fast:Hinge"
MULTINOMIAL = name("sklearn._loss._loss:CyHalfMultinomialLoss")
MAKER = "sklearn._loss._loss:__pyx_unpickle_CyHalfMultinomialLoss"
KNOWN = _loss.CyHalfMultinomialLoss().__reduce__()[1][1]


# fmt: off
HOSTILE = {
    "pickle.arguments": {
        "a threshold of text": call(HINGE, "x"),
        "trees by truth": forged(STAGES, n_trees_per_iteration_=True),
        "a tree of text features": forged(TREE, n_features_in_="3"),
        "size: degree of text": forged(TERMS_OF_3, _max_degree="3"),
        "size: terms without a number": forged(TERMS_OF_3, n_output_features_=..., _max_degree=102),
        "names for text": forged(KMEANS, _n_features_out="9"),
        "machine: probabilities missing": forged(SVC, _probA=..., _probB=...),
        "tree: depth of text": with_tree(max_depth="3"),
        "machine: kernel unknown": forged(SVC, kernel="none"),
        "word of text": forged(WORDS, vocabulary_={"dog": "0"}),
        "impossible parameter": forged(SGD, alpha=-1.0),
        "stages in a list": forged(STAGES, estimators_=list(STAGES.estimators_)),
        "no predictors": forged(HISTOGRAM, _predictors=[None]),
        "None for state": build(new(RIDGE), None),
        "an argument": new(RIDGE, 1),
        "two thresholds": call(HINGE, 1, 1),
        "a loss with state": call(MAKER, MULTINOMIAL, KNOWN, []),
    },
    "pickle.global": {
        "array type": forged(WORDS, dtype=np.ndarray),
        "metric of a matrix": forged(DistanceMetric.get_metric("mahalanobis", V=np.eye(3))),
        "metric by code": forged(DistanceMetric.get_metric("pyfunc", func=np.sum)),
        "eval": forged(preprocessing.FunctionTransformer(), func=eval),
    },
    "pickle.max-memory": {
        "texts for billions": forged(SGD, n_features_in_=(1 << 31) - 1),
        "stacked for billions": forged(STACK, _n_feature_outs=[1, 1 << 40]),
        "size: outputs": forged(dummy.DummyRegressor().fit(X, LABELS), n_outputs_=HUGE),
        "size: components": forged(fitted(decomposition.MiniBatchNMF(2, max_iter=2, random_state=0),
            X), _n_components=FAR),
        "size: steps for a document": forged(fitted(decomposition.LatentDirichletAllocation(2,
            max_iter=2), X), max_doc_update_iter=HUGE),
        "size: steps": forged(kernel_approximation.AdditiveChi2Sampler().fit(X), sample_steps=HUGE,
            sample_interval=0.5),
        "size: categories": forged(naive_bayes.CategoricalNB().fit(X > 0.5, LABELS),
            min_categories=HUGE),
        "size: layers": forged(fitted(MLPClassifier((3,), max_iter=2, random_state=0), X, LABELS),
            hidden_layer_sizes=(FAR,)),
        "size: degree": forged(TERMS_OF_3, _max_degree=1 << 31),
    },
    "pickle.state": {
        "tree: field missing": with_tree(values=...),
        "method": forged(SGD, predict="x"),
        "a number for a field": forged(HOLDER, lambda _, parts: (*parts[:2], {**parts[2], 3: 1})),
    },
    "pickle.unfinished": {
        "no state": new(RIDGE),
        "two of one without state": value((new(RIDGE) + b"\x94", b"h\x00")),
    },
    "pickle.version": {
        "no version": forged(SGD, _sklearn_version=...),
        "a loss of another layout": call(MAKER, MULTINOMIAL, 1, None),
    },
    "value.dtype": {
        "structures of objects": forged(HOLDER, fill_value=np.zeros(1, [("a", object)])),
    },
    "value.scipy": {
        "labels of floats": forged(NEIGHBOURS, _y=LABELS.astype(float)),
        "machine: counts below": forged(SVC, _n_support=np.array([HELD + 1, -1], "i4")),
        "tree: values of objects": with_tree(values=np.zeros((NODES, 1, 2), object)),
        "machine: support beyond": forged(SVC, support_=np.full(HELD, 30, "i4")),
        "machine: vectors flat": forged(SVC, support_vectors_=SVC.support_vectors_.ravel()),
        "machine: shape": forged(SVC, shape_fit_=(1, 3)),
        "size: clusters": forged(AGGLOMERATED, labels_=np.array([0, 1, HUGE])),
        "label past the classes": forged(NEIGHBOURS, _y=np.full(30, 2)),
        "points of objects": forged(NEIGHBOURS, _fit_X=X.astype(object)),
        "labels past two outputs": forged(NEIGHBOURS_OF_2, _y=np.full((30, 2), 2)),
    },
    "value.sklearn": {
        "machine: classes": forged(SVC, classes_=np.arange(5)),
        "no features": forged(NEIGHBOURS, n_features_in_=...),
        "feature before the first": histogram(feature_idx=-1),
        "left past the nodes": histogram(left=len(PREDICTOR.nodes)),
        "flat categories": forged(ONE_HOT, categories_=[np.zeros((2, 2))]),
        "tree: features zero": with_tree(args=(0, np.array([2]), 1)),
        "tree: child beyond": with_tree(nodes_=setting("left_child", 0, NODES)),
        "tree: child of itself": with_tree(nodes_=setting("left_child", 0, 0)),
        "tree: circle": with_tree(nodes_=setting("right_child", 1, 0)),
        "tree: two parents": with_tree(nodes_=swapped),
        "tree: feature beyond": with_tree(nodes_=setting("feature", 0, 3)),
        "tree: feature negative": with_tree(nodes_=setting("feature", 0, -2)),
        "tree: leaf with a child": with_tree(nodes_=setting("right_child", NODES - 1, 1)),
        "tree: half a leaf": with_tree(nodes_=setting("left_child", 0, -1)),
        "tree: depth": with_tree(max_depth=0),
        "tree: count": with_tree(node_count=NODES + 1),
        "tree: no nodes": with_tree(node_count=0),
        "tree: values": with_tree(values=np.zeros((NODES, 1, 3))),
        "tree: nodes of another type": with_tree(nodes=np.zeros(NODES, "i8")),
        "tree: features": with_tree(args=(1, np.array([2]), 1)),
        "tree: classes": with_tree(args=(3, np.array([9]), 1)),
        "tree: classes none": with_tree(args=(3, np.array([0]), 1)),
        "tree: outputs": with_tree(args=(3, np.array([2]), 2)),
        "tree: outputs many": with_tree(args=(3, np.array([2]), 1 << 40)),
        "machine: support short": forged(SVC, support_=SVC.support_[1:]),
        "machine: counts": forged(SVC, _n_support=np.array([HELD, HELD], "i4")),
        "machine: one class": forged(SVC, _n_support=np.array([HELD], "i4")),
        "machine: vectors short": forged(SVC, support_vectors_=SVC.support_vectors_[1:]),
        "machine: duals short": forged(SVC, _dual_coef_=SVC._dual_coef_[:, 1:]),
        "machine: intercept": forged(SVC, _intercept_=np.zeros(0)),
        "machine: probabilities": forged(SVC, _probA=np.zeros(1)),
        "machine: sparse": forged(SVC, _sparse=True),
        "machine: kernel of code": forged(SVC, kernel=len),
        "machine: kernel precomputed": forged(SVC, kernel="precomputed"),
        "centres narrow": forged(KMEANS, cluster_centers_=KMEANS.cluster_centers_[:, 1:]),
        "centres none": forged(KMEANS, cluster_centers_=KMEANS.cluster_centers_[:0]),
        "counts": forged(KMEANS, _counts=np.zeros(1)),
        "threads": forged(KMEANS, _n_threads=100_000),
        "no threads": forged(KMEANS, _n_threads=0),
        "jobs": forged(FOREST, n_jobs=100_000),
        "width": forged(ONE_HOT, _n_features_outs=[0]),
        "dropped": forged(ONE_HOT, _drop_idx_after_grouping=np.array([7], object)),
        "unsorted": forged(ONE_HOT, categories_=[np.array([1, 0])]),
        "not a number": forged(ONE_HOT, categories_=[np.array([np.nan, 0.0])]),
        "grouped": forged(ONE_HOT, _infrequent_enabled=True),
        "fewer categories": forged(ONE_HOT, categories_=[], _drop_idx_after_grouping=None),
        "word beyond": forged(WORDS, vocabulary_={"dog": 0, "cat": 1 << 40}),
        "word below": forged(WORDS, vocabulary_={"dog": -1}),
        "pattern for ever": forged(WORDS, token_pattern="(a+)+b"),
        "pattern long": forged(WORDS, token_pattern="a" * 1000),
        "tokens by code": forged(WORDS, tokenizer=len),
        "set beyond": forged(SETS, _cached_dict={"a": 9}),
        "coefficients": forged(SGD, coef_=np.zeros((1, 1))),
        "no coefficients": forged(SGD, coef_=np.zeros(())),
        "names for less than none": forged(KMEANS, _n_features_out=-1),
        "steps": forged(STEPS, X_thresholds_=np.zeros(0)),
        "a folder": forged(pipeline.make_pipeline(SGD), memory="/tmp/cache"),
        "function by itself": forged(preprocessing.FunctionTransformer(),
            func=feature_selection.f_classif),
        "type elsewhere": forged(SGD, alpha=np.float64),
        "size: endless": forged(PARTS, mean_=np.array([np.inf, 0.5, 0.5])),
        "size: endless in a square": forged(PARTS, mean_=np.array([1e308, 0.5, 0.5])),
        "size: degree below": forged(TERMS_OF_3, _min_degree=-1),
        "size: degrees in reverse": forged(TERMS_OF_3, _min_degree=4),
        "size: terms": forged(TERMS_OF_3, n_output_features_=21),
        "size: terms of more features": forged(TERMS_OF_3, n_features_in_=1_000_000,
            _max_degree=900),
        "size: distinct of many": forged(TERMS_OF_3, interaction_only=True,
            n_features_in_=1_000_000, _max_degree=900),
        "a depth that no nodes reach": with_tree(max_depth=HUGE),
        "a tree of other features": forged(TREE, n_features_in_=2),
        "a tree of no features": forged(TREE, n_features_in_=...),
        "no tree": forged(TREE, tree_=None),
        "another's tree": forged(NARROW_TREE, tree_=TREE.tree_),
        "stages of two features": forged(STAGES, estimators_=NARROW.estimators_),
        "stages of several outputs": forged(STAGES, estimators_=SEVERAL),
        "stages in a row": forged(STAGES, estimators_=STAGES.estimators_.ravel()),
        "stages of nothing": forged(STAGES, estimators_=np.empty((1, 1), object)),
        "more trees in a stage": forged(STAGES, n_trees_per_iteration_=3),
        "a tree to begin with": forged(STAGES, init_=TREE),
        "two outputs to begin with": forged(STAGES, init_=dummy.DummyRegressor().fit(X, BOTH)),
        "two classes to begin with": forged(STAGES_OF_3, init_=STAGES.init_),
        "a loss of two classes": forged(STAGES_OF_3, _loss=STAGES._loss),
        "feature past the last": histogram(feature_idx=3),
        "categories that there are not": histogram(is_categorical=1),
        "no nodes": histogram(PREDICTOR.nodes[:0]),
        "nodes of floats": histogram(np.zeros(3)),
        "another preprocessor": forged(HISTOGRAM, _preprocessor=preprocessing.StandardScaler()),
        "bins of one feature": forged(HISTOGRAM, _bin_mapper=NARROW_HISTOGRAM._bin_mapper),
        "a tree for a predictor": forged(HISTOGRAM, _predictors=[[TREE]]),
        "no thresholds": forged(HISTOGRAM._bin_mapper, bin_thresholds_=[]),
        "regression and two": forged(svm.SVR().fit(X, LABELS), _n_support=np.array([1, 1], "i4")),
        "sparse vectors": forged(svm.SVC().fit(sparse.csr_array(X), LABELS)),
        "labels short": forged(NEIGHBOURS, _y=LABELS[1:]),
        "points narrow": forged(NEIGHBOURS, _fit_X=X[:, 1:]),
        "fewer samples": forged(NEIGHBOURS, n_samples_fit_=5),
        "another search tree": forged(NEIGHBOURS, _tree=neighbors.KDTree(X[:10])),
        "another tree": forged(NEIGHBOURS, _tree=TREE),
        "classes in a square": forged(NEIGHBOURS, classes_=np.zeros((2, 2))),
        "labels of one output": forged(NEIGHBOURS_OF_2, _y=LABELS),
        "density over one feature": forged(DENSITY, tree_=neighbors.KDTree(X[:, :1])),
        "weighted metric": forged(DistanceMetric.get_metric("minkowski", p=3, w=np.ones(3))),
        "a function for a step": forged(pipeline.make_pipeline("passthrough"), steps=[("a",
            np.log1p)]),
        "deep": forged(HOLDER, fill_value=deep(70)),
        "one-versus-rest of more rows": forged(one_versus_rest()),
        "one-versus-rest of machines": forged(multiclass.OneVsRestClassifier(svm.SVC()).fit(X,
            np.c_[LABELS, 1 - LABELS])),
    },
}

#: Of these, the arguments say what is wrong.
UNNAMED = {
    "pickle.arguments": [searched(kind, 8, 1.0) for kind in SEARCHING],
    "value.scipy": [
        voting([0, (1 << 63) - 1]), voting([-1, 0], pipeline.make_pipeline),
        voting([0, 2], pipeline.make_pipeline), voting([0.0, 1.0]),
        *(searched(kind, 0, X[0]) for kind in SEARCHING),
    ],
    "value.sklearn": [
        *(searched(kind, at, part) for kind in SEARCHING for at, part in [
            (0, X.astype("f4")), (0, X[:0]), (1, np.full(30, 1 << 50)), (2, np.zeros(1)),
            (3, np.zeros((2, 1, 9))), (4, 0), (6, 1 << 60), (7, -1), (10, 1 << 40), (11, None),
            (12, np.ones(3))]),
    ],
}

#: What the helpers make by default, and older forms.
ACCEPTED = [
    with_tree(), with_tree(max_depth=NODES), histogram(), forged(one_versus_rest().estimators_[0]),
    *map(forged, (TREE, FOREST, KMEANS, ONE_HOT, WORDS, SETS, DICTS, SGD, TERMS, STEPS, SVC)),
    *map(forged, (STAGES, STAGES_OF_3, HISTOGRAM, NEIGHBOURS, HOLDER, AGGLOMERATED)),
    *map(forged, (TERMS_OF_3, svm.SVR().fit(X, LABELS), svm.OneClassSVM().fit(X))),
    *(forged(preprocessing.PolynomialFeatures(*given, **more).fit(X)) for given, more in [
        ((0,), {}), (((3, 3),), {"interaction_only": True, "include_bias": False}),
        (((2, 4),), {}), ((100,), {"interaction_only": True})]),
    *(forged(DistanceMetric.get_metric(of)) for of in ("euclidean", "manhattan", "canberra")),
    forged(DistanceMetric.get_metric("minkowski", p=3, dtype=np.float32)),
]

#: What the installed library cannot read any more, or what cannot be compared.
OLDER = [
    forged(STACK), voting([0, 1]), voting([0, 1], pipeline.make_pipeline),
    forged(DENSITY), call(HINGE), call(MAKER, MULTINOMIAL, KNOWN, None),
]
# fmt: on
