"""Check the fields of scikit-learn estimators that compiled code and array sizes depend on.

The one rule: every value that is used as an index or a size without a check (nodes, labels,
vocabularies, numbers of support vectors) fits the array that it refers to, or the object is
refused.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.pickles.budget import over
from safeser.pickles.shims.scipy import indexes, numbers
from safeser.pickles.shims.site import Site, plain
from safeser.pickles.shims.sklearn.trees import check_nodes, refuse, size

__all__ = ["check_estimator"]

_tree: Any = importlib.import_module("sklearn.tree._tree")
_kd_tree: Any = importlib.import_module("sklearn.neighbors._kd_tree")
_ball_tree: Any = importlib.import_module("sklearn.neighbors._ball_tree")
_predictor: Any = importlib.import_module("sklearn.ensemble._hist_gradient_boosting.common")
_preprocessing: Any = importlib.import_module("sklearn.preprocessing")
sparse: Any = importlib.import_module("scipy.sparse")

_INT31 = 1 << 31
_LEAF = -1
_MAX_DEGREE = 1000
#: So large that sums of squares of such numbers are finite.
_LARGEST = 1e150


# -- fields of estimators -------------------------------------------------------------------------


def check_estimator(site: Site, made: Any) -> None:
    """Refuse an estimator with a field that compiled code would wrongly trust."""
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
        refuse("the number of features of an estimator is no number")
    sizes = [fields.get(name) for name in _SIZES]
    sizes += fields["hidden_layer_sizes"] if _is_sequence(fields, "hidden_layer_sizes") else []
    widths += [part for part in sizes if type(part) is int]
    # Twice, since 2**20 is what hashing vectorizers make unless they are told otherwise.
    if any(width > 2 * site.limits.elements for width in widths) or (
        sum(map(int, widths)) > 4 * site.limits.elements
    ):
        raise over("max-memory", "an estimator states more features or parts than allowed")


#: Fields by which arrays are made, or steps taken, for each row, whatever else the estimator holds.
_SIZES = (
    *("_max_degree", "_n_components", "_n_out_full", "degree", "hidden_layer_sizes"),
    *("max_categories", "max_doc_update_iter", "min_categories", "n_classes_", "n_components"),
    *("n_components_", "n_outputs_", "n_trees_per_iteration_", "sample_steps"),
)


def _is_sequence(fields: dict[str, Any], name: str) -> bool:
    return type(fields.get(name)) in (list, tuple)


def _features(fields: dict[str, Any]) -> int:
    if "n_features_in_" not in fields:
        refuse("a fitted estimator has no number of features")
    return fields["n_features_in_"]  # type: ignore[no-any-return]  # check_estimator proved it an int


def _present(fields: dict[str, Any], name: str) -> bool:
    return fields.get(name) is not None


def _check_decision_tree(_: Site, fields: dict[str, Any]) -> None:
    if "tree_" in fields:
        if type(fields["tree_"]) is not _tree.Tree:
            refuse("the tree of an estimator has another type")
        if fields["tree_"].n_features != _features(fields):
            refuse("a tree was grown on another number of features than its estimator takes")


def _check_boosting(_: Site, fields: dict[str, Any]) -> None:
    """Predictions are added to an array whose width comes from elsewhere."""
    if "estimators_" not in fields:
        return
    stages = plain(fields["estimators_"], np.ndarray)
    width = size(fields.get("n_trees_per_iteration_"), "the trees of one stage")
    if stages.dtype != object or stages.ndim != 2 or stages.shape[1] != width or not stages.size:
        refuse("the stages of an estimator are not of one size")
    for part in stages.flat:
        grown: Any = getattr(part, "tree_", None)
        if type(part).__name__ != "DecisionTreeRegressor" or type(grown) is not _tree.Tree:
            refuse("a stage of an estimator is no regression tree")
        if grown.n_features != _features(fields) or (grown.n_outputs, grown.max_n_classes) != (
            1,
            1,
        ):
            refuse("a tree was grown on another number of features than its estimator takes")
    _check_initial(
        fields.get("init_"), width, multiclass=getattr(fields.get("_loss"), "is_multiclass", None)
    )


def _check_initial(initial: Any, width: int, *, multiclass: bool | None) -> None:
    if type(initial) is str:
        return
    kind = type(initial).__name__
    fields: dict[str, Any] = getattr(initial, "__dict__", {})
    if fields.get("n_outputs_") != 1:
        refuse("the initial estimator is not constant")
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
        refuse("the initial estimator is not constant")


def _check_histogram_predictor(site: Site, fields: dict[str, Any]) -> None:
    nodes = plain(fields.get("nodes"), np.ndarray)
    if nodes.dtype != np.dtype(_predictor.PREDICTOR_RECORD_DTYPE) or nodes.ndim != 1:
        refuse("the nodes of a tree have another layout than this scikit-learn's")
    if not len(nodes) or nodes["is_categorical"].any():
        refuse("a histogram tree is empty, or splits by categories, which is not accepted")
    leaf = nodes["is_leaf"] != 0
    left, right = (
        np.where(leaf, _LEAF, nodes[side].astype(np.int64)) for side in ("left", "right")
    )
    check_nodes(left, right, nodes["feature_idx"], features=_INT31)
    fields["nodes"] = np.array(nodes)


def _check_histogram_boosting(_: Site, fields: dict[str, Any]) -> None:
    if "_predictors" not in fields:
        return
    if fields.get("_preprocessor") is not None:
        refuse("histogram boosting with categories is not accepted")
    mapper: Any = getattr(fields.get("_bin_mapper"), "__dict__", {}).get("is_categorical_")
    if np.shape(mapper) != (_features(fields),) or np.any(mapper):
        refuse("histogram boosting with categories is not accepted")
    for stage in plain(fields["_predictors"], list):
        for part in plain(stage, list):
            nodes: Any = getattr(part, "nodes", None)
            if type(part).__name__ != "TreePredictor" or type(nodes) is not np.ndarray:
                refuse("a stage of an estimator is no histogram tree")
            inner = nodes["feature_idx"][nodes["is_leaf"] == 0]
            if len(inner) and inner.max() >= _features(fields):
                refuse("a tree uses a feature that does not exist")


def _check_bin_mapper(_: Site, fields: dict[str, Any]) -> None:
    if "bin_thresholds_" in fields:
        thresholds = plain(fields["bin_thresholds_"], list)
        flags = numbers(fields.get("is_categorical_"), ndim=1, kinds="u")
        if len(thresholds) != len(flags) or flags.any():
            refuse("histogram boosting with categories is not accepted")
        for part in thresholds:
            numbers(part, ndim=1, kinds="f")


def _check_libsvm(site: Site, fields: dict[str, Any]) -> None:
    """libsvm copies as much from each array as the others say."""
    if "support_" not in fields:
        return
    if fields.get("_sparse") is not False:
        refuse("a support vector machine fitted on sparse data is not accepted")
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
        refuse("the arrays of a support vector machine are not of one size")


def _check_neighbours(_: Site, fields: dict[str, Any]) -> None:
    if "_fit_X" not in fields:
        return
    points = fields["_fit_X"]
    if not sparse.issparse(points):
        numbers(points, ndim=2)
    if points.shape[1] != _features(fields) or fields.get("n_samples_fit_") != points.shape[0]:
        refuse("the points of an estimator are not of one size")
    built = fields.get("_tree")
    if built is not None and (
        not isinstance(built, _kd_tree.KDTree | _ball_tree.BallTree)
        or np.shape(built.data) != points.shape
    ):
        refuse("the search tree of an estimator does not hold its points")


def _check_neighbour_classes(site: Site, fields: dict[str, Any]) -> None:
    if "_y" not in fields:
        return
    labels: Any = plain(fields["_y"], np.ndarray)
    classes: Any = fields.get("classes_")
    columns = [(labels, classes)]
    if fields.get("outputs_2d_"):
        if labels.ndim != 2 or labels.shape[1] != len(plain(classes, list)):
            refuse("the labels of an estimator are not of one size")
        columns = list(zip(labels.T, classes, strict=True))
    for column, names in columns:
        indexes(site, column, below=len(numbers_or_text(names)))
    if len(labels) != fields["_fit_X"].shape[0]:
        refuse("the labels of an estimator are not of one size")
    fields["_y"] = np.array(labels)


def numbers_or_text(value: Any) -> Any:
    if plain(value, np.ndarray).ndim != 1:
        refuse("the classes of an estimator are no list")
    return value


def _check_density(_: Site, fields: dict[str, Any]) -> None:
    if "tree_" in fields and np.shape(fields["tree_"].data)[1] != _features(fields):
        refuse("the search tree of an estimator does not hold its points")


def _check_clusters(_: Site, fields: dict[str, Any]) -> None:
    if "cluster_centers_" not in fields:
        return
    centers = numbers(fields["cluster_centers_"], ndim=2, kinds="f")
    if not len(centers) or centers.shape[1] != _features(fields):
        refuse("the centres of an estimator are not of one size")
    if _present(fields, "_counts") and len(numbers(fields["_counts"], ndim=1)) != len(centers):
        refuse("the centres of an estimator are not of one size")


def _check_agglomeration(site: Site, fields: dict[str, Any]) -> None:
    """Features are counted, and their means written, by the numbers of their clusters."""
    if "labels_" in fields and "n_features_in_" in fields:
        indexes(site, fields["labels_"], below=_features(fields))


def _check_votes(site: Site, fields: dict[str, Any]) -> None:
    """Hard votes are counted by what the inner estimators answer, which are their classes."""
    if "estimators_" not in fields or fields.get("voting") == "soft":
        return
    encoder: Any = getattr(fields.get("le_"), "__dict__", {})
    known = len(numbers_or_text(encoder.get("classes_")))
    for part in plain(fields["estimators_"], list):
        inner: Any = getattr(part, "__dict__", {})
        if type(part).__name__ == "Pipeline":
            inner = getattr(plain(inner["steps"], list)[-1][1], "__dict__", {})
        indexes(site, inner.get("classes_"), below=known)


def _check_incremental(_: Site, fields: dict[str, Any]) -> None:
    """The next batch goes beside these into a decomposition, which never ends over infinity."""
    for name in ("components_", "mean_", "singular_values_", "var_"):
        learnt = np.asarray(plain(fields.get(name, 0.0), np.ndarray, float))
        if learnt.dtype.kind != "f" or not (np.abs(learnt) <= _LARGEST).all():
            refuse("what an estimator has learnt so far is not finite, or its square is not")


def _check_polynomial(_: Site, fields: dict[str, Any]) -> None:
    """Terms are numbered one by one, and written into arrays of the widths that are stated."""
    learnt = ("_min_degree", "_max_degree", "n_output_features_", "_n_out_full")
    if fields.keys().isdisjoint(("n_features_in_", *learnt)):
        return
    least, most, *stated = (plain(fields.get(name), int) for name in learnt)
    features, only = _features(fields), plain(fields.get("interaction_only"), bool)
    bias = plain(fields.get("include_bias"), bool)
    if not 0 <= least <= most <= _MAX_DEGREE:
        refuse("the degrees of polynomial features are out of bounds")
    # An exact count of too many terms takes unbounded time.
    if _terms(features, most, distinct=only, below=stated[1]) > stated[1]:
        refuse("polynomial features have more terms than declared")
    count = _preprocessing.PolynomialFeatures._num_combinations
    common = {"n_features": features, "max_degree": most, "interaction_only": only}
    if stated != [
        count(min_degree=least, include_bias=bias, **common),
        count(min_degree=0, include_bias=bias, **common),
    ]:
        refuse("the number of terms of polynomial features is not the declared one")


def _terms(features: int, degree: int, *, distinct: bool, below: int) -> int:
    """Return how many terms there are, or the first number above *below* on the way to it."""
    total, chosen = 0, 1
    for at in range(1, min(features, degree) + 1):
        if distinct:
            chosen = chosen * (features - at + 1) // at
            total += chosen
        else:
            chosen = chosen * (max(features, degree) + at) // at
            total = chosen - 1
        if total > below:
            break
    return total


def _check_gradient_descent(_: Site, fields: dict[str, Any]) -> None:
    """Partial fits write to as many coefficients as there are features."""
    for name in ("coef_", "_standard_coef", "_average_coef"):
        if _present(fields, name):
            shape = np.shape(plain(fields[name], np.ndarray))
            if not 0 < len(shape) < 3 or shape[-1] != _features(fields):
                refuse("the coefficients of an estimator are not of one size")


def _check_one_hot(_: Site, fields: dict[str, Any]) -> None:
    """A sparse matrix is made whose indexes and width come from different fields."""
    if "categories_" not in fields:
        return
    if fields.get("_infrequent_enabled") is not False:
        refuse("an encoder that groups infrequent categories is not accepted")
    categories = plain(fields["categories_"], list)
    dropped = fields.get("_drop_idx_after_grouping")
    if dropped is None:
        dropped = [None] * len(categories)
    widths = []
    for names, drop in zip(categories, dropped, strict=True):
        _check_sorted(numbers_or_text(names))
        if drop is not None and not 0 <= plain(drop, int, np.int64) < len(names):
            refuse("an encoder drops a category that does not exist")
        widths.append(len(names) - (drop is not None))
    if len(categories) != _features(fields) or fields.get("_n_features_outs") != widths:
        refuse("the number of categories of an encoder is not the declared one")


def _check_sorted(names: Any) -> None:
    # They are found by bisection, which may end beyond the end in what is not sorted.
    if names.dtype == object:
        return
    known = (
        names[:-1] if names.dtype.kind == "f" and len(names) and names[-1] != names[-1] else names
    )
    if (len(known) and not (known[1:] > known[:-1]).all()) or (known != known).any():  # noqa: PLR0124
        refuse("the categories of an encoder are not sorted")


def _check_places(places: Any, below: int) -> None:
    for place in plain(places, dict).values():
        if not 0 <= plain(place, int, np.int32, np.int64) < below:
            refuse("an index of a vocabulary is out of range")


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
            refuse("one-versus-rest over two or several labels is accepted of linear models only")


# Quantifiers inside of quantified groups take exponential time on a text of the right form.
_MAX_PATTERN = 256
_MAX_UNBOUNDED = 4


def _check_pattern(_: Site, fields: dict[str, Any]) -> None:
    pattern = fields.get("token_pattern")
    if pattern is None:
        return
    unbounded = sum(plain(pattern, str).count(mark) for mark in "*+{")
    if len(pattern) > _MAX_PATTERN or unbounded > _MAX_UNBOUNDED or _repeats_group(pattern):
        refuse("the token pattern of a vectorizer can take unbounded time")


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
        refuse("the steps of an isotonic function are not of one size")


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
    "AgglomerationTransform": _check_agglomeration,
    "BaseSGD": _check_gradient_descent,
    "IncrementalPCA": _check_incremental,
    "VotingClassifier": _check_votes,
    "PolynomialFeatures": _check_polynomial,
    "OneHotEncoder": _check_one_hot,
    "OneVsRestClassifier": _check_one_versus_rest,
    "_VectorizerMixin": _check_pattern,
    "CountVectorizer": _check_vocabulary,
    "DictVectorizer": _check_vocabulary,
    "MultiLabelBinarizer": _check_label_sets,
    "IsotonicRegression": _check_isotonic,
}
