"""scikit-learn's estimators: they predict the same, and functions stand in listed fields only."""

import warnings

import numpy as np
import pytest
from sklearn import (
    cluster,
    linear_model,
)
from sklearn.base import clone

from safeser import families
from safeser.gate.values import Grant
from tests.samples.hostile.estimators import RIDGE, SGD, field
from tests.samples.typed import GRANT, refused, replaced, sent_as, through
from tests.samples.values.estimators import ESTIMATORS, THREE, X


@pytest.fixture(autouse=True)
def _quiet():
    # Few iterations and small data are on purpose here.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda x: type(x).__name__)
def test_estimators_predict_the_same(estimator):
    fitted = clone(estimator).fit(X, THREE if type(estimator) is not cluster.KMeans else None)
    assert np.array_equal(fitted.predict(X), through(fitted).predict(X))


def test_a_field_of_plain_bytes_is_of_no_use():
    got = families.deserialize(*field(SGD, "classes_", b"raw"), GRANT)
    with pytest.raises((TypeError, ValueError, IndexError)):
        got.predict(X)


def test_another_version(monkeypatch):
    monkeypatch.setattr("sklearn.base.__version__", "0.9.0")
    assert refused(*sent_as("sklearn:estimator", linear_model.Ridge())) == "families.version"


def test_no_pickle_stands_beside_a_tree():
    grant = Grant("test", ("dask", "msgpack", "pickle"), profiles=("data", "numpy"))
    payload = replaced(RIDGE, 0, np.arange(4), ("pickle",))
    assert refused(*payload, grant=grant) == "families.child-type"
