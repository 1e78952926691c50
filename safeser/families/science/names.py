"""Types of SciPy, scikit-learn, xarray and PyTorch: the names, listed without importing any.

The one rule: a package is imported when an object of a type that is listed here is sent or loaded,
and for nothing else: a header that names one imports nothing before it is admitted.
"""

from __future__ import annotations

from safeser.families.registered import classes, models
from safeser.families.registry import registry

__all__ = ["register"]

_SPARSE = tuple(
    f"scipy.sparse:{name}_{kind}"
    for name in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
    for kind in ("array", "matrix")
)

_SKLEARN = (
    "sklearn:estimator",
    "sklearn:part",
    "sklearn:reference",
    "sklearn:masked",
    "sklearn.utils:Bunch",
)

_XARRAY = ("xarray:Variable", "xarray:Index", "xarray:DataArray", "xarray:Dataset")

_TORCH = ("torch:Tensor", "torch:Size", "torch:dtype", "torch:device")


def _load_scipy() -> None:
    from safeser.families.science import sparse

    sparse.register()


def _load_sklearn() -> None:
    from safeser.families.science import estimators

    estimators.register()


def _load_xarray() -> None:
    from safeser.families.science import labelled

    labelled.register()


def _load_torch() -> None:
    from safeser.families.science import tensors

    tensors.register()


def register() -> None:
    """List the names; called once, when safeser.families is imported."""
    registry.register_lazy("scipy", _SPARSE, _load_scipy)
    registry.register_lazy("sklearn", _SKLEARN, _load_sklearn)
    registry.register_lazy("xarray", _XARRAY, _load_xarray)
    registry.register_lazy("torch", _TORCH, _load_torch)
    classes.register_kind("pydantic model", models.is_model, models.plan_model)
