"""Reviewed functions for scikit-learn's estimators and the plain objects that they hold.

The one rule: no code of an estimator receives a peer's state. The fields that its entry lists, with
values of known types and no functions but listed ones, are stored in an empty instance;
:mod:`safeser.pickles.shims.sklearn.checks` then checks whatever compiled code trusts, and what
cannot be checked is refused.
"""

from __future__ import annotations

import contextlib
import importlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from safeser.errors import PayloadError
from safeser.pickles.names import shown
from safeser.pickles.nodes import GlobalRef
from safeser.pickles.profiles import Profile
from safeser.pickles.shims.labels import hide_memory
from safeser.pickles.shims.site import Draft, Site, bad, begin, begun, check_layout, plain
from safeser.pickles.shims.sklearn.checks import check_estimator
from safeser.pickles.shims.sklearn.trees import begin_tree, metric, search_tree, tree
from safeser.types import refused

__all__ = ["SHIMS"]

#: Untyped on purpose: scikit-learn is an extra.
sklearn: Any = importlib.import_module("sklearn")
BaseEstimator: Any = importlib.import_module("sklearn.base").BaseEstimator
_losses: Any = importlib.import_module("sklearn._loss._loss")
Bunch: Any = importlib.import_module("sklearn.utils").Bunch
hide_memory(Bunch)

_MAX_NESTING = 64
# Threads are started for each; a peer must not choose thousands.
_MAX_JOBS = 256
_SELECTION = "sklearn.feature_selection._univariate_selection:"
_METRICS = "sklearn.metrics."
_TYPES = ("numpy:", "builtins:")
#: Where a function or a class may stand, and what its name begins with. All are listed one by one.
_FUNCTIONS: Mapping[str, tuple[str, ...]] = {
    "score_func": (_SELECTION,),
    "_score_func": (_METRICS,),
    "func": ("numpy:",),
    "inverse_func": ("numpy:",),
    "pooling_func": ("numpy:",),
    "dtype": _TYPES,
    "_fit_dtype": _TYPES,
}
#: Set from outside by functions that every estimator's fit calls.
_COMMON = frozenset(
    ("n_features_in_", "feature_names_in_", "_n_features_out", "_sklearn_output_config")
)
_JOBS = frozenset(("n_jobs", "_n_threads", "n_threads"))


# -- what an estimator may hold -------------------------------------------------------------------


@cache
def _listed() -> Profile:
    return Profile.named("sklearn")


@cache
def _known(kind: type) -> bool:
    """Whether objects of exactly *kind* are made by reviewed functions only."""
    name = f"{kind.__module__}:{kind.__qualname__}"
    if name in _OTHERS:
        return True
    entry = _listed().get(name)
    if entry is None and name.startswith("scipy.sparse."):
        return Profile.named("scipy").get(name) is not None
    return entry is not None and entry.role in ("class", "callable")


#: Made by reviewed functions of other names, or of profile numpy.
_OTHERS = frozenset(
    (
        "numpy.random.mtrand:RandomState",
        "numpy.random._generator:Generator",
        "sklearn.neighbors._kd_tree:KDTree",
        "sklearn.neighbors._ball_tree:BallTree",
    )
)

_LEAVES = (type(None), bool, int, float, complex, str, bytes, slice, range)


@cache
def _functions(field: str) -> tuple[Any, ...]:
    """Return the live functions and classes that may stand in *field*."""
    begins = _FUNCTIONS.get(field, ())
    found = []
    for name, entry in _listed().entries.items():
        if begins and name.startswith(begins) and entry.role == "reference":
            # Not every version has all of them.
            with contextlib.suppress(PayloadError):
                found.append(_listed().object_of(entry))
    return tuple(found)


def _value(site: Site, value: Any, field: str, depth: int = 0) -> Any:
    """Return *value* with copies of its containers; refuse whatever is not known.

    Copies, so that nothing else that holds a list can change it after the estimator was checked.
    """
    kind: Any = type(value)
    if kind in _LEAVES or isinstance(value, np.generic | np.dtype):
        return value
    if depth > _MAX_NESTING:
        raise refused("sklearn", "the fields of an estimator nest too deep")
    place = id(value), depth, field
    known = site.remade.get(place)
    if known is None:
        known = site.remade[place] = value, _copied(site, value, kind, field, depth)
    return known[1]


def _copied(site: Site, value: Any, kind: Any, field: str, depth: int) -> Any:
    if kind is np.ndarray:
        return _array(site, value, field, depth)
    if kind in (list, set, dict, OrderedDict, Bunch):
        site.copied(value)
    if kind in (list, tuple, set, frozenset):
        return kind(_value(site, part, field, depth + 1) for part in value)
    if kind in (dict, OrderedDict, Bunch):
        # Keys were checked as keys when they were put in.
        made = kind()
        for key, part in value.items():
            made[key] = _value(site, part, field, depth + 1)
        return made
    if kind is np.ma.MaskedArray:
        data = _value(site, value.data, field, depth + 1)
        return np.ma.MaskedArray(data, mask=np.array(value.mask), fill_value=value.fill_value)
    if _known(kind) or any(value is function for function in _functions(field)):
        return value
    raise refused(
        "sklearn",
        f"an estimator holds in {shown(field)} what is neither plain nor known"
        " (functions may stand only where they are listed)",
    )


def _array(site: Site, value: Any, field: str, depth: int) -> Any:
    if not value.dtype.hasobject:
        return value
    if value.dtype != np.dtype(object):
        raise refused("sklearn", "an estimator holds objects inside of a structured array")
    made = np.empty(value.shape, object, order="F" if value.flags.fnc else "C")
    for at, part in np.ndenumerate(value):
        made[at] = _value(site, part, field, depth + 1)
    return made


# -- estimators -----------------------------------------------------------------------------------


def _finish(site: Site, draft: Any, state: Any) -> Any:
    entry = _listed().get(begun(draft, "an estimator").kind)
    if entry is None:
        raise refused("sklearn", "an estimator is not listed")
    kind, given = _listed().object_of(entry), dict(plain(state, dict))
    fields = entry.fields
    if issubclass(kind, BaseEstimator):
        _check_version(given.pop("_sklearn_version", None), entry.name)
        fields = fields | _COMMON | _parameters(kind)
    for field in given:
        if type(field) is not str or field not in fields:
            what = shown(field) if type(field) is str else "of no name"
            raise bad("state", f"{entry.name} has no such field: {what}")
    checked = {field: _value(site, value, field) for field, value in given.items()}
    _check_settings(checked, entry.name)
    made = object.__new__(kind)
    made.__dict__.update(checked)
    check_estimator(site, made)
    if "X_thresholds_" in checked and kind.__name__ == "IsotonicRegression":
        # Its function is not pickled; SciPy makes it anew from the steps, which are checked.
        made._build_f(made.X_thresholds_, made.y_thresholds_)
    if hasattr(kind, "_parameter_constraints"):
        # scikit-learn's own table of valid parameters; checking calls no method of the values.
        made._validate_params()
    return made


@cache
def _parameters(kind: Any) -> frozenset[str]:
    # It takes a signature apart, which is a fifth of a load.
    return frozenset(kind._get_param_names())


def _check_version(sent: Any, name: str) -> None:
    if sent != sklearn.__version__:
        said = shown(sent) if type(sent) is str else "no version"
        raise bad(
            "version",
            f"{name} was pickled by scikit-learn {said}, and here is {sklearn.__version__}:"
            " fields change their meaning between versions",
            fix="Load it with the version that wrote it.",
        )


def _check_settings(fields: Mapping[str, Any], name: str) -> None:
    if fields.get("memory") is not None:
        # joblib would unpickle whatever lies in that folder when the pipeline is fitted.
        raise refused("sklearn", f"{name} caches in a folder; only memory=None is accepted")
    for field in _JOBS & set(fields):
        jobs = fields[field]
        if jobs is not None and not -_MAX_JOBS <= plain(jobs, int) <= _MAX_JOBS:
            raise refused("sklearn", f"{name} asks for too many threads")
        if field != "n_jobs" and not jobs >= 1:
            raise refused("sklearn", f"{name} asks for no threads")


# -- small objects beside them --------------------------------------------------------------------


def _stateless(_: Site, name: str) -> Any:
    entry = _listed().get(name)
    assert entry is not None
    return _listed().object_of(entry)()


def _loss(_: Site, name: str, *numbers: Any) -> Any:
    """Make a compiled loss, which is its class and at most one number."""
    entry = _listed().get(name)
    assert entry is not None
    if len(numbers) > 1:
        raise bad("arguments", "a loss takes at most one number")
    return _listed().object_of(entry)(*(float(plain(n, int, float)) for n in numbers))


def _multinomial_loss(site: Site, _: str, kind: Any, checksum: Any, state: Any) -> Any:
    if state not in (None, ()):
        raise bad("arguments", "a loss keeps nothing")
    check_layout(_losses.CyHalfMultinomialLoss, checksum)
    return _loss(site, plain(kind, GlobalRef).name)


def _bunch(_: Site, __: str) -> Any:
    return Bunch.__new__(Bunch)


def _bunch_state(_: Site, made: Any, state: Any) -> Any:
    # Its own __setstate__ ignores the state as well.
    plain(state, dict)
    return made


def _triplet(site: Site, name: str, column: Any, neighbours: Any, estimator: Any) -> Any:
    entry = _listed().get(name)
    assert entry is not None
    parts = (_value(site, part, "imputation_sequence_") for part in (column, neighbours, estimator))
    return _listed().object_of(entry)(*parts)


def _begin_native(_: Site, __: str, kind: Any) -> Draft:
    # newObj(kind), where the judge let exactly the listed classes through.
    return Draft(plain(kind, GlobalRef).name)


SHIMS: dict[str, Callable[..., Any]] = {
    "begin": begin,
    "begin_native": _begin_native,
    "begin_tree": begin_tree,
    "bunch": _bunch,
    "bunch_state": _bunch_state,
    "finish": _finish,
    "loss": _loss,
    "metric": metric,
    "multinomial_loss": _multinomial_loss,
    "search_tree": search_tree,
    "stateless": _stateless,
    "tree": tree,
    "triplet": _triplet,
}
