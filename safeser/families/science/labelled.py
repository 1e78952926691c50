"""Encode and decode xarray variables, indexes, arrays and datasets.

The one rule: data in memory is sent as its arrays and pandas indexes, and xarray's own
constructors, which compare sizes, build the object again. Data that would first be computed or read
from a file is refused.
"""

from __future__ import annotations

import importlib
import types
from typing import Any

import numpy as np

from safeser.families.numpy.arrays import align
from safeser.families.plain import Unencodable, label
from safeser.families.registry import Parts, Typed, registry, required
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles.shims.labels import hide_memory

__all__ = ["register"]

#: Untyped on purpose: xarray is an extra.
xr: Any = importlib.import_module("xarray")
pd: Any = importlib.import_module("pandas")
hide_memory(importlib.import_module("xarray.core.common").AttrAccessMixin)
_indexes: Any = importlib.import_module("xarray.core.indexes")
_indexing: Any = importlib.import_module("xarray.core.indexing")
_extension: Any = importlib.import_module("xarray.core.extension_array")

_VARIABLES = {kind.__name__: kind for kind in (xr.Variable, xr.IndexVariable)}
_INDEXES = ("pandas:Index", "pandas:RangeIndex", "pandas:MultiIndex", "xarray:CFTimeIndex")
_ITEM = "Keep its dimension: select it by isel(x=[0]) in place of isel(x=0)."
_LOAD = (
    "Return x.load(), or x.as_numpy() where its arrays are of another library. Where open_mfdataset"
    " made it, leave out parallel=True."
)


def _expect(node: Node, position: int, *types: str) -> None:
    # What a pickle holds, which may stand here where it is granted, shows when it is built.
    if node.children[position].yields not in ("", *types):
        node.refuse(f"its part {position} is of a wrong type", "families.child-type")


# -- variables -----------------------------------------------------------------------------------


def _encode_variable(x: Any, limits: Limits) -> Parts:
    held, data = _held(x._data)
    children: list[tuple[str, object]] = [
        (".dims", tuple(x.dims)),
        (".attrs", dict(x.attrs)),
        (".encoding", dict(x.encoding)),
        *((f".data{name}", part) for name, part in data),
    ]
    return Parts({"kind": type(x).__name__, "data": held}, (), children)


def _held(data: Any) -> tuple[str, list[tuple[str, object]]]:
    """Return the kind of data that a variable holds, and its parts."""
    if type(data) is np.ndarray:
        return "array", [("", data)]
    if type(data) is _indexing.PandasIndexingAdapter:
        return "index", [("", data.array), (".dtype", _unusual(data))]
    if type(data) is _indexing.PandasMultiIndexingAdapter:
        level = (".level", data.level)
        return "levels", [("", data.array), (".dtype", _unusual(data)), level]
    if type(data) is _extension.PandasExtensionArray:
        if data.array.ndim != 1:
            raise Unencodable(data, "it is an item of a pandas extension array", fix=_ITEM)
        return "extension", [("", data.array)]
    if isinstance(data, pd.api.extensions.ExtensionArray) and data.ndim == 1:
        return "bare", [("", data)]  # text, and what stacking gives (xarray 2026.9)
    raise Unencodable(data, "its data are not NumPy's or pandas' in memory", fix=_LOAD)


def _unusual(data: Any) -> Any:
    """Return the dtype of *data* if it is another than xarray gives to such an index, else None."""
    plain = type(data)(data.array)
    return None if plain.dtype == data.dtype else data.dtype


#: By the kind of data that a variable holds: how many parts it has, and what the first is.
_HELD: dict[str, tuple[int, Any, tuple[str, ...]]] = {
    "array": (1, np.ndarray, ("numpy:ndarray",)),
    "index": (2, pd.Index, _INDEXES),
    "levels": (3, pd.MultiIndex, ("pandas:MultiIndex",)),
    "extension": (1, pd.api.extensions.ExtensionArray, ("pandas:array",)),
    "bare": (1, pd.api.extensions.ExtensionArray, ("pandas:array",)),
}


def _check_variable(node: Node, limits: Limits) -> None:
    kind, held = node.expect("kind", "data", children=None)
    if type(kind) is not str or type(held) is not str:
        node.refuse("its kind is not a name", "families.header")
    if kind not in _VARIABLES or held not in _HELD:
        node.refuse("its kind is not listed", "families.header")
    parts, _, types = _HELD[held]
    if len(node.children) != 3 + parts:
        node.refuse("it has another number of parts than its kind", "families.child-count")
    _expect(node, 0, "builtins:tuple")
    _expect(node, 1, "builtins:dict")
    _expect(node, 2, "builtins:dict")
    _expect(node, 3, *types)
    if kind == "IndexVariable" and held not in ("index", "levels"):
        node.refuse("its kind holds an index", "families.child-type")
    align(node.children[3])
    node.value = limits


def _decode_variable(node: Node, values: list[Any]) -> Any:
    dims, attrs, encoding, data, *rest = values
    required(type(dims) is tuple and type(attrs) is dict and type(encoding) is dict)
    made = _VARIABLES[node.meta["kind"]](
        dims, _hold(node, data, *rest), attrs, encoding, fastpath=True
    )
    required(made.dims == dims and len(set(dims)) == len(dims))
    return made


def _check_values(index: Any, dtype: Any, limits: Limits) -> None:
    # ``index.values`` makes an array of that dtype, however wide it is.
    required(getattr(dtype, "itemsize", 0) * len(index) <= limits.max_array)


def _hold(node: Node, data: Any, dtype: Any = None, level: Any = None) -> Any:
    held = node.meta["data"]
    if dtype is not None:
        _check_values(data, dtype, node.value)
    required(isinstance(data, _HELD[held][1]))
    required(dtype is None or isinstance(dtype, np.dtype) or dtype is _own(data, level, dtype))
    if held == "index":
        return _indexing.PandasIndexingAdapter(data, dtype=dtype)
    if held == "levels":
        hash(level)  # `in` takes an array, of whose comparison it sees only the length
        required(level is None or level in data.names)
        return _indexing.PandasMultiIndexingAdapter(data, dtype=dtype, level=level)
    required(held == "array" or data.ndim == 1)
    return _extension.PandasExtensionArray(data) if held == "extension" else data


def _own(index: Any, level: Any, dtype: Any) -> Any:
    """Return *dtype* if it is that of the extension array which *level* of *index* holds."""
    own = index.levels[index.names.index(level)].dtype
    return dtype if type(dtype) is type(own) and dtype == own else None


def _encode_data(x: Any, limits: Limits) -> Parts:
    held, children = _held(x)
    return Parts({"data": held}, (), children)


def _check_data(node: Node, limits: Limits) -> None:
    (held,) = node.expect("data", children=None)
    if held not in ("index", "levels", "extension") or len(node.children) != _HELD[held][0]:
        node.refuse("its kind is not listed", "families.header")
    _expect(node, 0, *_HELD[held][2])
    node.value = limits


def _decode_data(node: Node, values: list[Any]) -> Any:
    return _hold(node, *values)


# -- indexes -------------------------------------------------------------------------------------


def _encode_index(x: Any, limits: Limits) -> Parts:
    multi = type(x) is _indexes.PandasMultiIndex
    plain = type(x)(x.index, x.dim)
    dtype = None if plain.coord_dtype == x.coord_dtype else x.coord_dtype
    levels = dict(x.level_coords_dtype) if multi else None
    if multi and plain.level_coords_dtype == levels:
        levels = None
    children = [(".index", x.index), (".dim", x.dim), (".dtype", dtype), (".levels", levels)]
    return Parts({"multi": multi}, (), children)


def _check_index(node: Node, limits: Limits) -> None:
    (multi,) = node.expect("multi", children=4)
    if type(multi) is not bool:
        node.refuse("its flag is not a flag", "families.header")
    node.value = limits
    _expect(node, 0, *(("pandas:MultiIndex",) if multi else _INDEXES))
    _expect(node, 2, "builtins:NoneType", "numpy:dtype")
    _expect(node, 3, "builtins:NoneType", "builtins:dict")


def _decode_index(node: Node, values: list[Any]) -> Any:
    index, dim, dtype, levels = values
    hash(dim)
    required(isinstance(index, pd.MultiIndex if node.meta["multi"] else pd.Index))
    required(levels is None or (type(levels) is dict and node.meta["multi"]))
    required(dtype is None or isinstance(dtype, (np.dtype, pd.api.extensions.ExtensionDtype)))
    for kind in (dtype, *(levels or {}).values()):
        _check_values(index, kind, node.value)
    if not node.meta["multi"]:
        return _indexes.PandasIndex(index, dim, dtype)
    made = _indexes.PandasMultiIndex(index, dim, levels)
    required(levels is None or levels.keys() == set(index.names))
    for name, kind in made.level_coords_dtype.items():
        required(isinstance(kind, np.dtype) or kind is _own(index, name, kind))
    if dtype is not None:
        made.coord_dtype = dtype
    return made


def _coordinates(x: Any) -> tuple[list[tuple[Any, Any]], set[Any]]:
    """Return each index of *x* once, with the attributes of its variables, and their names."""
    listed: list[tuple[Any, Any]] = []
    covered: set[Any] = set()
    for index, variables in x.xindexes.group_by_index():
        if type(index) not in (_indexes.PandasIndex, _indexes.PandasMultiIndex):
            names = ", ".join(map(label, variables))
            fix = f"Return x.drop_indexes([{names}]).load()."
            raise Unencodable(index, "only indexes that pandas holds are kept", fix=fix)
        made = index.create_variables()
        if made.keys() != variables.keys():
            raise Unencodable(x, f"the index of {label(index.dim)} has other names than its own")
        about = {name: (dict(v.attrs), dict(v.encoding)) for name, v in variables.items()}
        listed.append((index, about))
        covered |= variables.keys()
    return listed, covered


# -- arrays and datasets -------------------------------------------------------------------------


def _encode_array(x: Any, limits: Limits) -> Parts:
    indexes, covered = _coordinates(x)
    coords = {name: v.variable for name, v in x.coords.items() if name not in covered}
    children: list[tuple[str, object]] = [
        (".variable", x.variable),
        (".coords", coords),
        (".indexes", indexes),
        (".name", x.name),
        (" (order)", [*x.coords]),
    ]
    return Parts({}, (), children)


def _encode_dataset(x: Any, limits: Limits) -> Parts:
    indexes, covered = _coordinates(x)
    inner = {name: v for name, v in x.variables.items() if name not in covered}
    children: list[tuple[str, object]] = [
        (".data_vars", {name: v for name, v in inner.items() if name not in x.coords}),
        (".coords", {name: v for name, v in inner.items() if name in x.coords}),
        (".indexes", indexes),
        (" (order)", [*x.coords]),
        (".attrs", dict(x.attrs)),
        (".encoding", dict(x.encoding)),
    ]
    return Parts({}, (), children)


def _check_array(node: Node, limits: Limits) -> None:
    node.expect(children=5)
    _expect(node, 0, "xarray:Variable")
    _expect(node, 1, "builtins:dict")
    _expect(node, 2, "builtins:list")
    _expect(node, 4, "builtins:list")


def _check_dataset(node: Node, limits: Limits) -> None:
    node.expect(children=6)
    for position, kind in enumerate(("dict", "dict", "list", "list", "dict", "dict")):
        _expect(node, position, f"builtins:{kind}")


def _built(plain: dict[Any, Any], indexes: list[Any], order: list[Any]) -> Any:
    """Return the coordinates that *plain* variables and *indexes* are, in *order*."""
    required(type(plain) is dict and type(indexes) is list and type(order) is list)
    variables, owners = dict(plain), {}
    for entry in indexes:
        required(type(entry) is tuple and len(entry) == 2)
        index, about = entry
        required(type(index) in (_indexes.PandasIndex, _indexes.PandasMultiIndex))
        made = index.create_variables()
        required(type(about) is dict and about.keys() == made.keys())
        for name, variable in made.items():
            attrs, encoding = about[name]
            required(type(attrs) is dict and type(encoding) is dict and name not in variables)
            variable.attrs, variable.encoding = attrs, encoding
            variables[name], owners[name] = variable, index
    required(all(isinstance(v, xr.Variable) for v in variables.values()))
    required(len(order) == len(variables))
    coords = xr.Coordinates({name: variables[name] for name in order}, indexes=owners)
    required(len(coords) == len(variables))
    return coords


def _decode_array(node: Node, values: list[Any]) -> Any:
    variable, plain, indexes, name, order = values
    coords = _built(plain, indexes, order)
    hash(name)
    required(isinstance(variable, xr.Variable))
    sizes = variable.sizes
    for coord in coords.variables.values():
        required(all(sizes.get(dim) == size for dim, size in coord.sizes.items()))
    return xr.DataArray(
        variable,
        coords=dict(coords.variables),
        name=name,
        indexes=dict(coords.xindexes),
        fastpath=True,
    )


def _decode_dataset(node: Node, values: list[Any]) -> Any:
    held, plain, indexes, order, attrs, encoding = values
    required(type(held) is dict and type(attrs) is dict and type(encoding) is dict)
    required(all(isinstance(v, xr.Variable) for v in held.values()))
    coords = _built(plain, indexes, order)
    made = xr.Dataset(held, coords, attrs)
    made.encoding = encoding
    required(made.data_vars.keys() == held.keys() and made.coords.keys() == coords.keys())
    return made


def _keep_items(kind: Any) -> None:
    """Make an item of *kind*, an extension array, an array of its object, as that of an index is.

    In xarray's own item pandas looks for a length at address zero: to print it ends the process.
    """
    stock = kind.__getitem__

    def item(self: Any, key: Any) -> Any:
        match key:
            case (int() | np.integer() as at, types.EllipsisType()):
                return np.fromiter([self.array[at]], object, 1).reshape(())
        return stock(self, key)

    kind.__getitem__ = item


def register() -> None:
    """List xarray's types; called once, when the first is needed."""
    _keep_items(_extension.PandasExtensionArray)
    variables = (xr.Variable, xr.IndexVariable)
    indexes = (_indexes.PandasIndex, _indexes.PandasMultiIndex)
    data = (
        _indexing.PandasIndexingAdapter,
        _indexing.PandasMultiIndexingAdapter,
        _extension.PandasExtensionArray,
    )
    for name, classes, encode, check, decode in (
        ("Variable", variables, _encode_variable, _check_variable, _decode_variable),
        # The data of an index or of an extension array, which tasks of map_blocks pass on.
        ("IndexData", data, _encode_data, _check_data, _decode_data),
        ("Index", indexes, _encode_index, _check_index, _decode_index),
        ("DataArray", (xr.DataArray,), _encode_array, _check_array, _decode_array),
        ("Dataset", (xr.Dataset,), _encode_dataset, _check_dataset, _decode_dataset),
    ):
        registry.register(Typed(f"xarray:{name}", classes, encode, check, decode))
