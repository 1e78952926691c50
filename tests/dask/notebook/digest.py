"""Tells values apart by type, dtype and content; the first cell of the notebook of operations."""

import hashlib

import numpy as np
import pandas as pd
import xarray as xr


def told(value):
    """Return a text that differs for values of other types, dtypes, labels or contents."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, dict):
        return f"{kind}{{{', '.join(f'{told(k)}: {told(v)}' for k, v in value.items())}}}"
    if isinstance(value, set | frozenset):
        return f"{kind}{sorted(map(told, value))}"
    if type(value) in (list, tuple):
        return f"{kind}[{', '.join(map(told, value))}]"
    if isinstance(value, np.ndarray):
        return f"{kind} {value.dtype} {value.shape} {value.tolist()}"
    if isinstance(value, pd.DataFrame):
        columns = [told(value.iloc[:, n]) for n in range(value.shape[1])]
        return f"{kind} {told(value.index)} {told(value.columns)} {columns}"
    if isinstance(value, pd.Series):
        return f"{kind} {value.name!r} {value.dtype!r} {told(value.index)} {told(value.tolist())}"
    if isinstance(value, pd.Index):
        return f"{kind} {value.names} {value.dtype} {told(value.tolist())}"
    if isinstance(value, xr.DataArray | xr.Dataset):
        return f"{kind} {value.to_dict()}"
    return f"{kind} {value!r}"


def show(value):
    """Print the digest of *value*, and its beginning for people."""
    text = told(value)
    print(f"shown {hashlib.sha256(text.encode()).hexdigest()[:16]} {text[:300]!r}")
