"""Check scikit-learn's decision trees, search trees and metrics, which compiled code trusts.

The one rule: nodes lead from parent to child and end within their arrays, and search trees are
rebuilt from their points; anything else is refused.
"""

from __future__ import annotations

import importlib
from typing import Any, NoReturn

import numpy as np

from safeser.pickles.shims.scipy import identical, numbers, repeated
from safeser.pickles.shims.site import Draft, Site, bad, begun, plain
from safeser.types import refused

__all__ = ["begin_tree", "check_nodes", "metric", "refuse", "search_tree", "size", "tree"]

_tree: Any = importlib.import_module("sklearn.tree._tree")
_kd_tree: Any = importlib.import_module("sklearn.neighbors._kd_tree")
_ball_tree: Any = importlib.import_module("sklearn.neighbors._ball_tree")
DistanceMetric: Any = importlib.import_module("sklearn.metrics").DistanceMetric

_INT31 = 1 << 31
_LEAF = -1


def refuse(what: str) -> NoReturn:
    raise refused("sklearn", what)


def size(value: Any, what: str) -> int:
    """Return *value* if it is a valid size."""
    if not 0 < plain(value, int) < _INT31:
        refuse(f"{what} is no size")
    return value  # type: ignore[no-any-return]  # plain() proved it an int


# -- decision trees -------------------------------------------------------------------------------


def begin_tree(site: Site, _: str, features: Any, classes: Any, outputs: Any) -> Draft:
    counts = numbers(classes, ndim=1, kinds="i")
    if len(counts) != size(outputs, "the outputs of a tree") or counts.min() < 1:
        refuse("the number of outputs of a tree is wrong")
    parts = size(features, "the features of a tree"), np.array(counts, np.intp), outputs
    return Draft("tree", *parts)


def tree(site: Site, draft: Any, state: Any) -> Any:
    """Make a tree whose nodes lead from parent to child and end within its arrays."""
    features, classes, outputs = begun(draft, "a tree").parts
    given = plain(state, dict)
    if set(given) != {"max_depth", "node_count", "nodes", "values"}:
        raise bad("state", "the fields of a tree differ from scikit-learn's")
    nodes, values = plain(given["nodes"], np.ndarray), numbers(given["values"], ndim=3, kinds="f")
    if nodes.dtype != np.dtype(_tree.NODE_DTYPE) or nodes.ndim != 1:
        refuse("the nodes of a tree have another layout than this scikit-learn's")
    count = size(given["node_count"], "the nodes of a tree")
    if len(nodes) != count or values.shape != (count, outputs, classes.max()):
        refuse("the arrays of a tree are not of one size")
    site.charge_bytes(2 * (nodes.nbytes + values.nbytes))
    deepest = check_nodes(
        nodes["left_child"], nodes["right_child"], nodes["feature"], features=features
    )
    if not deepest <= plain(given["max_depth"], int) <= count:
        # Paths are written into arrays of that length, made for each row.
        refuse("the declared depth of a tree is wrong")
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


def check_nodes(left: Any, right: Any, feature: Any, *, features: int) -> int:
    """Refuse nodes that do not form exactly one tree; return its depth.

    Builders number a child after its parent, so that following children always ends; that each
    node but the root is a child once makes it a tree.
    """
    inner = np.flatnonzero(left != _LEAF)
    if (right[left == _LEAF] != _LEAF).any():
        refuse("a leaf of a tree has a child")
    children = np.concatenate((left[inner], right[inner]))
    parents = np.concatenate((inner, inner))
    if (children <= parents).any() or (children >= len(left)).any():
        refuse("a child in a tree is outside of it, or comes before its parent")
    if len(children) != len(left) - 1 or repeated(children):
        refuse("a node of a tree has no parent, or two parents")
    if len(inner) and not (feature[inner].min() >= 0 and feature[inner].max() < features):
        refuse("a tree uses a feature that does not exist")
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
    name = begun(draft, "a metric").kind.rpartition(":")[2]
    power, vector, _matrix = plain(state, tuple)
    bits = np.float64 if name.endswith("64") else np.float32
    if name[:-2] == "MinkowskiDistance":
        if not plain(power, float) >= 1 or len(numbers(vector, ndim=1, kinds="f")):
            refuse("a Minkowski metric is weighted, or of an impossible power")
        made = DistanceMetric.get_metric("minkowski", bits, p=power)
    else:
        made = DistanceMetric.get_metric(_PLAIN_METRICS[name[:-2]], bits)
    if type(made).__name__ != name or not all(map(identical, state, made.__getstate__())):
        refuse("the state of a metric does not fit its name")
    return made


# Counters of searches: each search changes them.
_COUNTERS = slice(7, 11)


def search_tree(site: Site, draft: Any, state: Any) -> Any:
    """Rebuild the tree from its points, and refuse nodes and ranges that differ from it.

    They are read without any check.
    """
    begun(draft, "a search tree")
    parts = plain(state, tuple)
    if len(parts) != 13:
        raise bad("state", "the state of a search tree differs from scikit-learn's")
    data, leaf_size, measure, weights = parts[0], parts[4], parts[11], parts[12]
    points = numbers(data, ndim=2, kinds="f")
    if points.dtype != np.float64 or not points.size or not isinstance(measure, DistanceMetric):
        refuse("the points of a search tree are no numbers")
    if weights is not None and len(numbers(weights, ndim=1, kinds="f")) != len(points):
        refuse("the weights of a search tree are not one for each point")
    counters = parts[_COUNTERS]
    if not all(0 <= plain(count, int) < _INT31 for count in counters):
        refuse("a search tree has searched an impossible number of times")
    # Building sorts the points, some log2(n) times; what it gives is copied to be compared.
    site.charge_bytes(5 * points.nbytes)
    site.charge(len(points) * len(points).bit_length() >> 2)
    kind = _kd_tree.KDTree if draft.kind.endswith(":KDTree") else _ball_tree.BallTree
    leaves = size(leaf_size, "the leaves of a search tree")
    made = kind(np.array(points), leaf_size=leaves, metric=measure, sample_weight=weights)
    own = made.__getstate__()
    searched = (*own[: _COUNTERS.start], *counters, *own[_COUNTERS.stop :])
    if not all(map(identical, parts, searched)):
        refuse("a search tree is not the one that is built from its points")
    # All parts but the counters, on which nothing depends.
    made.__setstate__(searched)
    return made
