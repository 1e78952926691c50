"""Profile sklearn, attacked: sizes that an estimator states, by which it makes arrays when used.

Each was found by forging estimators and using them (verification/fuzz/estimators.py): a number that
took gigabytes for each row, or a loop that did not end.
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from safeser.pickles import loads

pytest.importorskip("sklearn")
from sklearn import (
    cluster,
    decomposition,
    dummy,
    ensemble,
    kernel_approximation,
    naive_bayes,
    pipeline,
    preprocessing,
)
from sklearn.neural_network import MLPClassifier

from tests.pickles.test_sklearn_attacks import LABELS, NODES, PROFILE, X, forged, refused, with_tree


def fitted(made, *given):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations are on purpose
        return made.fit(*given)


HUGE = (1 << 31) - 1
TERMS = preprocessing.PolynomialFeatures(3).fit(X)
BAD = {
    "outputs": (dummy.DummyRegressor().fit(X, LABELS), {"n_outputs_": HUGE}),
    "classes": (dummy.DummyClassifier().fit(X, LABELS), {"n_classes_": HUGE}),
    "components": (
        fitted(decomposition.MiniBatchNMF(2, max_iter=2, random_state=0), X),
        {"_n_components": 1 << 40},
    ),
    "steps": (
        kernel_approximation.AdditiveChi2Sampler().fit(X),
        {"sample_steps": HUGE, "sample_interval": 0.5},
    ),
    "categories": (naive_bayes.CategoricalNB().fit(X > 0.5, LABELS), {"min_categories": HUGE}),
    "layers": (
        fitted(MLPClassifier((3,), max_iter=2, random_state=0), X, LABELS),
        {"hidden_layer_sizes": (1 << 40,)},
    ),
    "clusters": (
        cluster.FeatureAgglomeration(2).fit(X),
        {"labels_": np.array([0, 1, HUGE])},
    ),
    # np.bincount wrote outside of its memory: SIGABRT.
    "clusters by far": (
        cluster.FeatureAgglomeration(2).fit(X),
        {"labels_": np.array([0, 1, (1 << 63) - 1])},
    ),
    "clusters below": (cluster.FeatureAgglomeration(2).fit(X), {"labels_": np.array([0, 1, -1])}),
    "endless": (
        decomposition.IncrementalPCA(2).fit(X),
        {"mean_": np.array([np.inf, 0.5, 0.5])},
    ),
    "degree": (TERMS, {"_max_degree": 1 << 31}),
    "degree below": (TERMS, {"_min_degree": -1}),
    "degree of text": (TERMS, {"_max_degree": "3"}),
    "degrees in reverse": (TERMS, {"_min_degree": 4}),
    "degree of another": (TERMS, {"_max_degree": 2}),
    "terms": (TERMS, {"n_output_features_": 21}),
    "all terms": (TERMS, {"_n_out_full": 21}),
    "terms of more features": (TERMS, {"n_features_in_": 1_000_000, "_max_degree": 900}),
    "bias": (TERMS, {"include_bias": False}),
    "distinct": (TERMS, {"interaction_only": True}),
    "distinct of many": (
        TERMS,
        {"interaction_only": True, "n_features_in_": 1_000_000, "_max_degree": 900},
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("made", "fields"), BAD.values(), ids=BAD)
def test_stated_sizes_that_nothing_holds(made, fields):
    loads(forged(made), profile=PROFILE)
    refused(forged(made, **fields))


@pytest.mark.parametrize(
    "made",
    [
        preprocessing.PolynomialFeatures(),
        preprocessing.PolynomialFeatures(0),
        preprocessing.PolynomialFeatures((3, 3), interaction_only=True, include_bias=False),
        preprocessing.PolynomialFeatures((2, 4)),
        preprocessing.PolynomialFeatures(100, interaction_only=True),
    ],
)
def test_terms_that_are_as_many_as_stated(made):
    made.fit(X)
    assert (loads(forged(made), profile=PROFILE).transform(X) == made.transform(X)).all()


def test_a_tree_is_no_deeper_than_it_has_nodes():
    loads(with_tree(max_depth=NODES), profile=PROFILE)
    refused(with_tree(max_depth=HUGE), "declared depth")


@pytest.mark.parametrize("wrap", [lambda made: made, pipeline.make_pipeline])
@pytest.mark.parametrize("classes", [[0, (1 << 63) - 1], [-1, 0], [0, 2], [0.0, 1.0]])
def test_votes_are_counted_within_the_classes(wrap, classes):
    inner = naive_bayes.GaussianNB()
    made = ensemble.VotingClassifier([("a", wrap(inner))]).fit(X, LABELS)
    got = loads(forged(made), profile=PROFILE)
    assert (got.predict(X) == made.predict(X)).all()
    fitted = made.estimators_[0]
    (fitted.steps[-1][1] if hasattr(fitted, "steps") else fitted).classes_ = np.array(classes)
    refused(forged(made))
