"""What scikit-learn's compiled code trusts: trees, search trees, and fields of estimators.

The one rule: whatever is used as an index or a size without a look (nodes, labels, vocabularies,
numbers of support vectors) fits what it points into, or the object is refused. Search trees are
built anew from their points.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from safeser.pickles.shims.scipy import identical, indexes, numbers, repeated
from safeser.pickles.shims.site import Draft, Site, bad, plain

__all__ = ["begin_tree", "check_estimator", "metric", "search_tree", "tree"]

_tree: Any = importlib.import_module("sklearn.tree._tree")
_kd_tree: Any = importlib.import_module("sklearn.neighbors._kd_tree")
_ball_tree: Any = importlib.import_module("sklearn.neighbors._ball_tree")
DistanceMetric: Any = importlib.import_module("sklearn.metrics").DistanceMetric
_predictor: Any = importlib.import_module("sklearn.ensemble._hist_gradient_boosting.common")
sparse: Any = importlib.import_module("scipy.sparse")

_INT31 = 1 << 31
_LEAF = -1


def _refuse(what: str) -> NoReturn:
    raise bad("sklearn", what)


def _size(value: Any, what: str) -> int:
    if not 0 < plain(value, int) < _INT31:
        _refuse(f"{what} is no size")
    return value  # type: ignore[no-any-return]  # plain() proved it an int


# -- decision trees -------------------------------------------------------------------------------


def begin_tree(site: Site, _: str, features: Any, classes: Any, outputs: Any) -> Draft:
    counts = numbers(classes, ndim=1, kinds="i")
    if len(counts) != _size(outputs, "the outputs of a tree") or counts.min() < 1:
        _refuse("a tree has not as many outputs as it says")
    site.charge_bytes(counts.nbytes)
    parts = _size(features, "the features of a tree"), np.array(counts, np.intp), outputs
    return Draft("tree", *parts)


def tree(site: Site, draft: Any, state: Any) -> Any:
    """Make a tree whose nodes lead from parent to child and end within its arrays."""
    if type(draft) is not Draft:
        raise bad("build-twice", "a tree is built twice")
    features, classes, outputs = draft.parts
    given = plain(state, dict)
    if set(given) != {"max_depth", "node_count", "nodes", "values"}:
        raise bad("state", "a tree has a field that scikit-learn's has not, or lacks one")
    nodes, values = plain(given["nodes"], np.ndarray), numbers(given["values"], ndim=3, kinds="f")
    if nodes.dtype != np.dtype(_tree.NODE_DTYPE) or nodes.ndim != 1:
        _refuse("the nodes of a tree have another layout than this scikit-learn's")
    count = _size(given["node_count"], "the nodes of a tree")
    if len(nodes) != count or values.shape != (count, outputs, classes.max()):
        _refuse("the arrays of a tree are not of one size")
    site.charge_bytes(2 * (nodes.nbytes + values.nbytes))
    deepest = _check_nodes(
        nodes["left_child"], nodes["right_child"], nodes["feature"], features=features
    )
    if not deepest <= plain(given["max_depth"], int) < _INT31:
        # Paths are written into arrays of that length.
        _refuse("a tree is deeper than it says")
    made = _tree.Tree(features, classes, outputs)
    # Only its sizes and bytes are taken, and these were checked.
    made.__setstate__(
        {
            "max_depth": given["max_depth"],
            "node_count": count,
            "nodes": np.ascontiguousarray(nodes),
            "values": np.ascontiguousarray(values, np.float64),
        }
    )
    return made


def _check_nodes(left: Any, right: Any, feature: Any, *, features: int) -> int:
    """Refuse nodes that make anything but one tree; return how deep it is.

    Builders number a child after its parent, so that following children always ends; that each
    node but the root is a child once makes it a tree.
    """
    inner = np.flatnonzero(left != _LEAF)
    if (right[left == _LEAF] != _LEAF).any():
        _refuse("a leaf of a tree has a child")
    children = np.concatenate((left[inner], right[inner]))
    parents = np.concatenate((inner, inner))
    if (children <= parents).any() or (children >= len(left)).any():
        _refuse("a child in a tree is outside of it, or comes before its parent")
    if len(children) != len(left) - 1 or repeated(children):
        _refuse("a node of a tree is nobody's child, or that of two")
    if len(inner) and not (feature[inner].min() >= 0 and feature[inner].max() < features):
        _refuse("a tree looks at a feature that there is not")
    depth = np.zeros(len(left), np.int64)
    for node in inner.tolist():
        depth[left[node]] = depth[right[node]] = depth[node] + 1
    return int(depth.max())


# -- search trees and their metrics ---------------------------------------------------------------

_PLAIN_METRICS = {
    "EuclideanDistance": "euclidean",
    "ManhattanDistance": "manhattan",
    "ChebyshevDistance": "chebyshev",
    "HaversineDistance": "haversine",
    "HammingDistance": "hamming",
    "CanberraDistance": "canberra",
    "BrayCurtisDistance": "braycurtis",
}


def metric(_: Site, draft: Any, state: Any) -> Any:
    """Make a metric by its name; those that carry a matrix or a function are refused."""
    if type(draft) is not Draft:
        raise bad("build-twice", "a metric is built twice")
    power, vector, _matrix = plain(state, tuple)
    name = draft.kind.rpartition(":")[2]
    bits = np.float64 if name.endswith("64") else np.float32
    if name[:-2] == "MinkowskiDistance":
        if not plain(power, float) >= 1 or len(numbers(vector, ndim=1, kinds="f")):
            _refuse("a Minkowski metric is weighted, or of an impossible power")
        made = DistanceMetric.get_metric("minkowski", bits, p=power)
    else:
        made = DistanceMetric.get_metric(_PLAIN_METRICS[name[:-2]], bits)
    if type(made).__name__ != name or not all(map(identical, state, made.__getstate__())):
        _refuse("a metric has another state than its name says")
    return made


# How far searches have come: each changes them.
_COUNTERS = slice(7, 11)


def search_tree(site: Site, draft: Any, state: Any) -> Any:
    """Build the tree anew from its points, and refuse nodes and ranges that are not those built.

    They are read without any check.
    """
    if type(draft) is not Draft:
        raise bad("build-twice", "a search tree is built twice")
    parts = plain(state, tuple)
    if len(parts) != 13:
        raise bad("state", "a search tree has another state than scikit-learn's")
    data, leaf_size, measure, weights = parts[0], parts[4], parts[11], parts[12]
    points = numbers(data, ndim=2, kinds="f")
    if points.dtype != np.float64 or not points.size or not isinstance(measure, DistanceMetric):
        _refuse("the points of a search tree are no numbers")
    if weights is not None and len(numbers(weights, ndim=1, kinds="f")) != len(points):
        _refuse("the weights of a search tree are not one for each point")
    counters = parts[_COUNTERS]
    if not all(0 <= plain(count, int) < _INT31 for count in counters):
        _refuse("a search tree has searched an impossible number of times")
    # Building sorts the points, some log2(n) times; what it gives is copied to be compared.
    site.charge_bytes(5 * points.nbytes)
    site.charge(len(points) * len(points).bit_length() >> 2)
    kind = _kd_tree.KDTree if draft.kind.endswith(":KDTree") else _ball_tree.BallTree
    size = _size(leaf_size, "the leaves of a search tree")
    made = kind(np.array(points), leaf_size=size, metric=measure, sample_weight=weights)
    own = made.__getstate__()
    searched = (*own[: _COUNTERS.start], *counters, *own[_COUNTERS.stop :])
    if not all(map(identical, parts, searched)):
        _refuse("a search tree is not the one that is built from its points")
    # Its own parts but for the counters, of which nothing depends.
    made.__setstate__(searched)
    return made


# -- fields of estimators -------------------------------------------------------------------------


def check_estimator(site: Site, made: Any) -> None:
    """Refuse an estimator of whose fields compiled code would believe what is not so."""
    fields = made.__dict__
    _check_widths(site, fields)
    for kind in type(made).__mro__:
        check = _CHECKS.get(kind.__name__)
        if check is not None and kind.__module__.startswith("sklearn."):
            check(site, fields)


def _check_widths(site: Site, fields: dict[str, Any]) -> None:
    """Refuse numbers of features for each of which get_feature_names_out would write a text."""
    several = fields.get("_n_feature_outs")
    stated = [fields.get("_n_features_out"), fields.get("n_output_features_")]
    stated += [] if several is None else plain(several, list)
    widths = [plain(width, int, np.int32, np.int64) for width in stated if width is not None]
    if _present(fields, "n_features_in_"):
        widths.append(plain(fields["n_features_in_"], int))
    if any(width < 0 for width in widths):
        _refuse("the features of an estimator are no number")
    # Twice, since 2**20 is what hashing vectorizers make unless they are told otherwise.
    if sum(map(int, widths)) > 2 * site.limits.max_refs:
        raise bad("max-refs", "an estimator states more features than allowed")


def _features(fields: dict[str, Any]) -> int:
    if "n_features_in_" not in fields:
        _refuse("a fitted estimator does not say how many features it takes")
    return fields["n_features_in_"]  # type: ignore[no-any-return]  # check_estimator proved it an int


def _present(fields: dict[str, Any], name: str) -> bool:
    return fields.get(name) is not None


def _check_decision_tree(_: Site, fields: dict[str, Any]) -> None:
    if "tree_" in fields:
        if type(fields["tree_"]) is not _tree.Tree:
            _refuse("the tree of an estimator is none")
        if fields["tree_"].n_features != _features(fields):
            _refuse("a tree was grown on another number of features than its estimator takes")


def _check_boosting(_: Site, fields: dict[str, Any]) -> None:
    """Predictions are added to an array whose width comes from elsewhere."""
    if "estimators_" not in fields:
        return
    stages = plain(fields["estimators_"], np.ndarray)
    width = _size(fields.get("n_trees_per_iteration_"), "the trees of one stage")
    if stages.dtype != object or stages.ndim != 2 or stages.shape[1] != width or not stages.size:
        _refuse("the stages of an estimator are not of one size")
    for part in stages.flat:
        grown: Any = getattr(part, "tree_", None)
        if type(part).__name__ != "DecisionTreeRegressor" or type(grown) is not _tree.Tree:
            _refuse("a stage of an estimator is no regression tree")
        if grown.n_features != _features(fields) or (grown.n_outputs, grown.max_n_classes) != (
            1,
            1,
        ):
            _refuse("a tree was grown on another number of features than its estimator takes")
    _check_initial(
        fields.get("init_"), width, multiclass=getattr(fields.get("_loss"), "is_multiclass", None)
    )


def _check_initial(initial: Any, width: int, *, multiclass: bool | None) -> None:
    if type(initial) is str:
        return
    kind = type(initial).__name__
    fields: dict[str, Any] = getattr(initial, "__dict__", {})
    if fields.get("n_outputs_") != 1:
        _refuse("an estimator begins with something else than a constant")
    if kind == "DummyRegressor":
        fits = width == 1 and np.shape(fields.get("constant_", ())) == (1, 1)
    else:
        prior = np.shape(fields.get("class_prior_", ()))
        fits = (
            kind == "DummyClassifier"
            and fields.get("strategy") == "prior"
            and fields.get("n_classes_") == max(width, 2)
            and prior == (max(width, 2),)
            and multiclass is (width > 1)
        )
    if not fits:
        _refuse("an estimator begins with something else than a constant")


def _check_histogram_predictor(site: Site, fields: dict[str, Any]) -> None:
    nodes = plain(fields.get("nodes"), np.ndarray)
    if nodes.dtype != np.dtype(_predictor.PREDICTOR_RECORD_DTYPE) or nodes.ndim != 1:
        _refuse("the nodes of a tree have another layout than this scikit-learn's")
    if not len(nodes) or nodes["is_categorical"].any():
        _refuse("a histogram tree is empty, or splits by categories, which is not accepted")
    site.charge_bytes(nodes.nbytes)
    leaf = nodes["is_leaf"] != 0
    left, right = (
        np.where(leaf, _LEAF, nodes[side].astype(np.int64)) for side in ("left", "right")
    )
    _check_nodes(left, right, nodes["feature_idx"], features=_INT31)
    fields["nodes"] = np.array(nodes)


def _check_histogram_boosting(_: Site, fields: dict[str, Any]) -> None:
    if "_predictors" not in fields:
        return
    if fields.get("_preprocessor") is not None:
        _refuse("histogram boosting with categories is not accepted")
    mapper: Any = getattr(fields.get("_bin_mapper"), "__dict__", {}).get("is_categorical_")
    if np.shape(mapper) != (_features(fields),) or np.any(mapper):
        _refuse("histogram boosting with categories is not accepted")
    for stage in plain(fields["_predictors"], list):
        for part in plain(stage, list):
            nodes: Any = getattr(part, "nodes", None)
            if type(part).__name__ != "TreePredictor" or type(nodes) is not np.ndarray:
                _refuse("a stage of an estimator is no histogram tree")
            inner = nodes["feature_idx"][nodes["is_leaf"] == 0]
            if len(inner) and inner.max() >= _features(fields):
                _refuse("a tree looks at a feature that there is not")


def _check_bin_mapper(_: Site, fields: dict[str, Any]) -> None:
    if "bin_thresholds_" in fields:
        thresholds = plain(fields["bin_thresholds_"], list)
        flags = numbers(fields.get("is_categorical_"), ndim=1, kinds="u")
        if len(thresholds) != len(flags) or flags.any():
            _refuse("histogram boosting with categories is not accepted")
        for part in thresholds:
            numbers(part, ndim=1, kinds="f")


def _check_libsvm(site: Site, fields: dict[str, Any]) -> None:
    """libsvm copies as much from each array as the others say."""
    if "support_" not in fields:
        return
    if fields.get("_sparse") is not False:
        _refuse("a support vector machine fitted on sparse data is not accepted")
    (samples, *_rest) = plain(fields.get("shape_fit_"), tuple)
    support = fields["support_"] = indexes(site, fields["support_"], below=plain(samples, int))
    counts = fields["_n_support"] = indexes(site, fields.get("_n_support"), below=_INT31)
    vectors = numbers(fields.get("support_vectors_"), ndim=2, kinds="f")
    classes, held = len(counts), len(support)
    classifier = "classes_" in fields
    pairs = classes * (classes - 1) // 2
    duals = numbers(fields.get("_dual_coef_"), ndim=2, kinds="f")
    probabilities = [
        len(numbers(fields.get(name), ndim=1, kinds="f")) for name in ("_probA", "_probB")
    ]
    # With a precomputed kernel there are none: indexes into the given rows stand for them.
    expected = (0, 0) if fields.get("kernel") == "precomputed" else (held, _features(fields))
    sound = (
        classes >= 2
        and (classifier or classes == 2)
        and int(counts.sum(dtype=np.int64) if classifier else counts[0]) == held
        and vectors.shape == expected
        and duals.shape == (classes - 1, held)
        and len(numbers(fields.get("_intercept_"), ndim=1, kinds="f")) == pairs
        and probabilities in ([0, 0], [pairs, pairs])
        and (not classifier or np.shape(fields["classes_"]) == (classes,))
    )
    if not sound:
        _refuse("the arrays of a support vector machine are not of one size")


def _check_neighbours(_: Site, fields: dict[str, Any]) -> None:
    if "_fit_X" not in fields:
        return
    points = fields["_fit_X"]
    if not sparse.issparse(points):
        numbers(points, ndim=2)
    if points.shape[1] != _features(fields) or fields.get("n_samples_fit_") != points.shape[0]:
        _refuse("the points of an estimator are not of one size")
    built = fields.get("_tree")
    if built is not None and (
        not isinstance(built, _kd_tree.KDTree | _ball_tree.BallTree)
        or np.shape(built.data) != points.shape
    ):
        _refuse("the search tree of an estimator does not hold its points")


def _check_neighbour_classes(site: Site, fields: dict[str, Any]) -> None:
    if "_y" not in fields:
        return
    labels: Any = plain(fields["_y"], np.ndarray)
    classes: Any = fields.get("classes_")
    columns = [(labels, classes)]
    if fields.get("outputs_2d_"):
        if labels.ndim != 2 or labels.shape[1] != len(plain(classes, list)):
            _refuse("the labels of an estimator are not of one size")
        columns = list(zip(labels.T, classes, strict=True))
    for column, names in columns:
        indexes(site, column, below=len(numbers_or_text(names)))
    if len(labels) != fields["_fit_X"].shape[0]:
        _refuse("the labels of an estimator are not of one size")
    fields["_y"] = np.array(labels)


def numbers_or_text(value: Any) -> Any:
    if plain(value, np.ndarray).ndim != 1:
        _refuse("the classes of an estimator are no list")
    return value


def _check_density(_: Site, fields: dict[str, Any]) -> None:
    if "tree_" in fields and np.shape(fields["tree_"].data)[1] != _features(fields):
        _refuse("the search tree of an estimator does not hold its points")


def _check_clusters(_: Site, fields: dict[str, Any]) -> None:
    if "cluster_centers_" not in fields:
        return
    centers = numbers(fields["cluster_centers_"], ndim=2, kinds="f")
    if not len(centers) or centers.shape[1] != _features(fields):
        _refuse("the centres of an estimator are not of one size")
    if _present(fields, "_counts") and len(numbers(fields["_counts"], ndim=1)) != len(centers):
        _refuse("the centres of an estimator are not of one size")


def _check_gradient_descent(_: Site, fields: dict[str, Any]) -> None:
    """Partial fits write to as many coefficients as there are features."""
    for name in ("coef_", "_standard_coef", "_average_coef"):
        if _present(fields, name):
            shape = np.shape(plain(fields[name], np.ndarray))
            if not 0 < len(shape) < 3 or shape[-1] != _features(fields):
                _refuse("the coefficients of an estimator are not of one size")


def _check_one_hot(_: Site, fields: dict[str, Any]) -> None:
    """A sparse matrix is made whose indexes and width come from different fields."""
    if "categories_" not in fields:
        return
    if fields.get("_infrequent_enabled") is not False:
        _refuse("an encoder that groups infrequent categories is not accepted")
    categories = plain(fields["categories_"], list)
    dropped = fields.get("_drop_idx_after_grouping")
    if dropped is None:
        dropped = [None] * len(categories)
    widths = []
    for names, drop in zip(categories, dropped, strict=True):
        _check_sorted(numbers_or_text(names))
        if drop is not None and not 0 <= plain(drop, int, np.int64) < len(names):
            _refuse("an encoder drops a category that there is not")
        widths.append(len(names) - (drop is not None))
    if len(categories) != _features(fields) or fields.get("_n_features_outs") != widths:
        _refuse("the categories of an encoder are not as many as it says")


def _check_sorted(names: Any) -> None:
    # They are found by bisection, which may end beyond the end in what is not sorted.
    if names.dtype == object:
        return
    known = (
        names[:-1] if names.dtype.kind == "f" and len(names) and names[-1] != names[-1] else names
    )
    if (len(known) and not (known[1:] > known[:-1]).all()) or (known != known).any():  # noqa: PLR0124
        _refuse("the categories of an encoder are not sorted")


def _check_places(places: Any, below: int) -> None:
    for place in plain(places, dict).values():
        if not 0 <= plain(place, int, np.int32, np.int64) < below:
            _refuse("a vocabulary points outside of itself")


def _check_vocabulary(_: Site, fields: dict[str, Any]) -> None:
    if "vocabulary_" in fields:
        _check_places(fields["vocabulary_"], len(fields["vocabulary_"]))


def _check_label_sets(_: Site, fields: dict[str, Any]) -> None:
    if _present(fields, "_cached_dict"):
        _check_places(fields["_cached_dict"], len(numbers_or_text(fields.get("classes_"))))


def _check_one_versus_rest(_: Site, fields: dict[str, Any]) -> None:
    """For several labels, rows are counted as indexes by what the inner estimators answer."""
    if "estimators_" not in fields:
        return
    labels: Any = getattr(fields.get("label_binarizer_"), "__dict__", {})
    if labels.get("y_type_") == "multiclass":
        return
    for part in plain(fields["estimators_"], list):
        inner: Any = getattr(part, "__dict__", {})
        kind = type(part)
        linear = kind.__module__.startswith("sklearn.linear_model.") or kind.__name__ == "LinearSVC"
        answers = np.shape(inner.get("coef_", ()))[:1], np.size(inner.get("intercept_", ()))
        if not linear or answers != ((1,), 1) or np.ndim(inner["coef_"]) != 2:
            _refuse("one-versus-rest over two or several labels is accepted of linear models only")


# Quantifiers inside of quantified groups take exponential time on a text of the right form.
_MAX_PATTERN = 256
_MAX_UNBOUNDED = 4


def _check_pattern(_: Site, fields: dict[str, Any]) -> None:
    pattern = fields.get("token_pattern")
    if pattern is None:
        return
    unbounded = sum(plain(pattern, str).count(mark) for mark in "*+{")
    if len(pattern) > _MAX_PATTERN or unbounded > _MAX_UNBOUNDED or _repeats_group(pattern):
        _refuse("the token pattern of a vectorizer can take for ever")


def _repeats_group(pattern: str) -> bool:
    return any(f"){mark}" in pattern for mark in "*+{")


def _check_isotonic(_: Site, fields: dict[str, Any]) -> None:
    if "X_thresholds_" not in fields:
        return
    steps = [
        len(numbers(fields.get(name), ndim=1, kinds="f"))
        for name in ("X_thresholds_", "y_thresholds_")
    ]
    if not steps[0] or steps[0] != steps[1]:
        _refuse("the steps of an isotonic function are not of one size")


_CHECKS: dict[str, Callable[[Site, dict[str, Any]], None]] = {
    "BaseDecisionTree": _check_decision_tree,
    "BaseGradientBoosting": _check_boosting,
    "BaseHistGradientBoosting": _check_histogram_boosting,
    "TreePredictor": _check_histogram_predictor,
    "_BinMapper": _check_bin_mapper,
    "BaseLibSVM": _check_libsvm,
    "NeighborsBase": _check_neighbours,
    "KNeighborsClassifier": _check_neighbour_classes,
    "RadiusNeighborsClassifier": _check_neighbour_classes,
    "KernelDensity": _check_density,
    "_BaseKMeans": _check_clusters,
    "BaseSGD": _check_gradient_descent,
    "OneHotEncoder": _check_one_hot,
    "OneVsRestClassifier": _check_one_versus_rest,
    "_VectorizerMixin": _check_pattern,
    "CountVectorizer": _check_vocabulary,
    "DictVectorizer": _check_vocabulary,
    "MultiLabelBinarizer": _check_label_sets,
    "IsotonicRegression": _check_isotonic,
}
