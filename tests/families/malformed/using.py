"""Everything that people do with a value they received, to see whether it holds.

The one rule: a use may raise, since a mutated value may be an odd one; it may not crash, hang, or
show that memory is wrong.
"""

from __future__ import annotations

import copy
import itertools
import pickle
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["BROKEN", "uses"]

#: What no use of a sound value raises: the interpreter's own invariants, or memory without bound.
BROKEN = (SystemError, MemoryError, AssertionError)

_BOUND = 200


def uses(value: Any) -> Iterator[Callable[[], object]]:
    """Yield each use of *value* and of what it holds, one level down."""
    yield from _any(value)
    for package, more in _OF_PACKAGES.items():
        if type(value).__module__.partition(".")[0] == package and package in sys.modules:
            yield from more(value)
    if isinstance(value, Mapping) and callable(value.values):  # Arrow's scalars are different
        inner: Iterable[Any] = list(value.values())[:8]
    elif isinstance(value, (list, tuple, set, frozenset)):
        inner = list(value)[:8]
    else:
        return
    for item in inner:
        for package, more in _OF_PACKAGES.items():
            if type(item).__module__.partition(".")[0] == package:
                yield from more(item)


def _any(value: Any) -> Iterator[Callable[[], object]]:
    yield lambda: repr(value)
    yield lambda: str(value)
    yield lambda: value == value
    yield lambda: hash(value)
    yield lambda: len(value)
    yield lambda: bool(value)
    yield lambda: [repr(item) for item in itertools.islice(iter(value), _BOUND)]
    yield lambda: copy.copy(value)
    yield lambda: copy.deepcopy(value) == value
    yield lambda: pickle.dumps(value)
    yield lambda: dir(value)
    yield lambda: sys.getsizeof(value)


def _numpy(value: Any) -> Iterator[Callable[[], object]]:
    import numpy as np

    if isinstance(value, np.dtype):
        yield lambda: np.zeros(2, value)
        yield lambda: np.zeros(2, value).tolist()
        yield value.newbyteorder
        return
    yield lambda: value.tolist()
    yield lambda: value.tobytes()
    yield lambda: value.astype("U")
    yield lambda: value.astype(object)
    yield lambda: value.astype("f8")
    yield lambda: value.astype("?").sum()
    for name in ("sum", "max", "argmax", "argsort", "all", "ravel", "nonzero", "item", "round"):
        yield lambda name=name: getattr(value, name)()
    if not isinstance(value, np.ndarray):
        yield lambda: value + value
        return
    yield lambda: np.sort(value, axis=None)
    yield lambda: value.copy(order="F")
    yield lambda: value.T.reshape(-1)
    yield lambda: value.take([0, -1])
    yield lambda: value[::-1][:5]
    yield lambda: value + value
    yield lambda: np.unique(value)
    yield lambda: np.concatenate([value, value])
    yield lambda: np.count_nonzero(value)
    yield lambda: value[value != value]
    yield lambda: value.view("u1")
    yield lambda: np.array_str(value.reshape(-1)[:3])
    yield lambda: memoryview(value).tobytes()
    if value.dtype == bool:
        yield lambda: value[value]
    for field in (value.dtype.names or ())[:4]:
        yield lambda field=field: value[field].tolist()
    if value.flags.writeable and value.size:
        yield lambda: value.__setitem__(..., value.reshape(-1)[0])


def _pandas(value: Any) -> Iterator[Callable[[], object]]:
    yield lambda: value.describe()
    yield lambda: value.describe(include="all")
    yield lambda: value.info(buf=None, memory_usage="deep", verbose=False)
    yield lambda: value.memory_usage(deep=True)
    yield lambda: value.sort_index()
    yield lambda: value.sort_values()
    yield lambda: value.reindex(value.index[::-1])
    yield lambda: value.reindex([0, 1, "a"])
    yield lambda: value.reset_index()
    yield lambda: value.head(2)
    yield lambda: value.isna().sum()
    yield lambda: value.fillna(0)
    yield lambda: value.astype(object)
    yield lambda: value.astype(str)
    yield lambda: value.to_numpy()
    yield lambda: value.to_dict()
    yield lambda: value.groupby(level=0).count()
    yield lambda: sys.modules["pandas"].concat([value, value])
    yield lambda: value.append(value)
    yield lambda: value.take([0, -1])
    yield lambda: value.iloc[[0, -1]]
    yield lambda: value.loc[value.index[0]]
    yield lambda: value.get_indexer(value[:3])
    yield lambda: value.unique()
    yield lambda: value.duplicated()
    yield lambda: value.is_monotonic_increasing
    yield lambda: value.union(value)
    yield lambda: value.to_frame().T
    yield lambda: value.select_dtypes("number").sum()
    yield lambda: value.value_counts()
    yield lambda: value.argsort()
    yield lambda: value.factorize()
    yield lambda: value.shift(1)
    yield lambda: value + value
    yield lambda: value.dtypes
    yield lambda: value.equals(value.copy())


def _pyarrow(value: Any) -> Iterator[Callable[[], object]]:
    yield lambda: value.validate(full=True)
    yield lambda: value.to_pylist()[:_BOUND]
    yield lambda: value.to_pydict()
    yield lambda: value.as_py()
    yield lambda: value.slice(1)
    yield lambda: value.take([0])
    yield lambda: value.filter([True] * len(value))
    yield lambda: value.to_pandas()
    yield lambda: value.to_numpy(zero_copy_only=False)
    yield lambda: value.cast("string")
    yield lambda: value.nbytes
    yield lambda: value.equals(value)
    yield lambda: value.combine_chunks()
    yield lambda: value.unique()
    yield lambda: value.dictionary_encode()
    yield lambda: value.schema.to_string()


def _scipy(value: Any) -> Iterator[Callable[[], object]]:
    yield lambda: value.toarray()
    yield lambda: value @ value.T
    yield lambda: value.T @ value
    yield lambda: value.sum()
    yield lambda: value.tocsr().sum_duplicates()
    yield lambda: value.tocsc().sort_indices()
    yield lambda: value.tocoo().todok()
    yield lambda: value + value
    yield lambda: value[0]
    yield lambda: value.nonzero()
    yield lambda: value.copy().eliminate_zeros()
    yield lambda: value.diagonal()
    yield lambda: value.max()


_OF_PACKAGES: dict[str, Callable[[Any], Iterator[Callable[[], object]]]] = {
    "numpy": _numpy,
    "pandas": _pandas,
    "pyarrow": _pyarrow,
    "scipy": _scipy,
}
