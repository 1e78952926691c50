"""scikit-learn's estimators of family ``dask``: a tree of listed classes and their fields.

The one rule: an estimator is built by the constructors that were reviewed for pickles, from fields
that its entry in profile ``sklearn`` lists; no code of its class sees a peer's state before.
"""

from __future__ import annotations

import contextlib
import importlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from safeser.errors import PayloadError
from safeser.families.numpy.arrays import align
from safeser.families.plain import Unencodable, label
from safeser.families.registry import Parts, Typed, registry
from safeser.families.reviewed import reviewed, site
from safeser.families.tree import Node
from safeser.pickles import Entry, Profile
from safeser.pickles.live import Live
from safeser.pickles.shims.labels import hide_memory
from safeser.pickles.shims.site import Draft, Site
from safeser.pickles.shims.sklearn import SHIMS
from safeser.values import Limits

__all__ = ["register"]

#: Untyped on purpose: scikit-learn is an extra.
sklearn: Any = importlib.import_module("sklearn")
BaseEstimator: Any = importlib.import_module("sklearn.base").BaseEstimator
Bunch: Any = importlib.import_module("sklearn.utils").Bunch
hide_memory(Bunch)

_VERSION = "_sklearn_version"
_PLAIN = (type(None), bool, int, float, str)
_CONTAINERS = (list, tuple, set, frozenset)
_MAPPINGS = (dict, OrderedDict, Bunch)

#: Serializers of what a field may hold; a pickle inside of one would be another way in.
_INSIDE = ("msgpack", "collection", "dask")
#: What an estimator's fields consist of; no class of the host's own is handed a function.
_THROUGH = (
    "numpy:ndarray",
    "numpy.ma:MaskedArray",
    "collections:OrderedDict",
    "sklearn.utils:Bunch",
    "sklearn:masked",
)
_OBJECT, _PART, _REFERENCE = "sklearn:estimator", "sklearn:part", "sklearn:reference"
_UNLISTED = "its class is not one of scikit-learn's that safeser lists"
_MASKED, _BUNCH = "sklearn:masked", "sklearn.utils:Bunch"


@dataclass(frozen=True, slots=True, eq=False)
class _Reference:
    """A listed function or class that stands in an estimator's field."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class _MaskedObjects:
    """A masked array of objects, as searches keep for parameters that are no numbers."""

    value: Any


# -- what is listed ------------------------------------------------------------------------------


@cache
def _listed() -> Profile:
    return Profile.named("sklearn")


@cache
def _natives() -> dict[str, str]:
    """Return the reviewed function for each compiled class that is made empty and given state."""
    return {
        name: entry.state
        for entry in _listed().entries.values()
        if entry.make == "sklearn.begin_native"
        for name in entry.args[0]
    }


def _entry(name: str) -> Entry | None:
    """Return the entry of a class whose objects have fields, as estimators do."""
    entry = _listed().get(name)
    return entry if entry is not None and entry.make == "sklearn.begin" else None


_ARGUMENTS = ("sklearn.stateless", "sklearn.loss", "sklearn.triplet", "sklearn.begin_tree")


def _is_part(name: str) -> bool:
    entry = _listed().get(name)
    return name in _natives() or (entry is not None and entry.make in _ARGUMENTS)


def _classes(right: Callable[[Entry], bool]) -> Iterator[type]:
    """Yield the live classes of entries that are *right*; not every version has all of them."""
    for entry in _listed().entries.values():
        if right(entry):
            with contextlib.suppress(PayloadError):
                yield _listed().object_of(entry)


def _name(value: Any) -> str:
    return f"{type(value).__module__}:{type(value).__qualname__}"


@cache
def _references() -> dict[int, str]:
    """Return the names of the listed functions and classes, by their identity: they never go."""
    names = {}
    for name, entry in _listed().entries.items():
        if entry.role == "reference":
            with contextlib.suppress(PayloadError):
                names[id(_listed().object_of(entry))] = name
    return names


# -- sending -------------------------------------------------------------------------------------


def _sendable(value: Any) -> Any:
    """Return *value* with what has no serializer of its own wrapped in one that is ours."""
    kind = type(value)
    made: Any = value
    if kind is np.ndarray:
        made = _sendable_array(value)
    elif kind in _CONTAINERS:
        made = kind(map(_sendable, value))
    elif kind in _MAPPINGS:
        made = kind()
        for key, item in value.items():
            made[key] = _sendable(item)
    elif kind is np.ma.MaskedArray and value.dtype == object:
        made = _MaskedObjects(value)
    elif callable(value) and id(value) in _references():
        made = _Reference(_references()[id(value)])
    elif isinstance(value, BaseEstimator) and _entry(_name(value)) is None:
        raise Unencodable(value, _UNLISTED)
    return made


def _sendable_array(value: Any) -> Any:
    if value.dtype == object:
        made = np.empty(value.shape, object, order="F" if value.flags.fnc else "C")
        for at, item in np.ndenumerate(value):
            made[at] = _sendable(item)
        return made
    if 0 in value.strides and value.size > 1:
        return value.copy()
    return value


def _encode_estimator(x: Any, limits: Limits) -> Parts:
    name = _name(x)
    state = x.__getstate__() or {}
    plain = {field: value for field, value in state.items() if type(value) in _PLAIN}
    children: list[tuple[str, object]] = [(" (parameters)", plain)]
    for field in state:
        if field not in plain:
            children.append((f".{field}", _sendable_field(state[field], field)))
    try:
        # Whoever receives it would refuse what this refuses.
        SHIMS["finish"](Site(limits, given=limits.max_bytes, shared=False), Draft(name), state)
    except PayloadError as error:
        raise Unencodable(x, error.message) from None
    except (TypeError, ValueError, AttributeError) as error:  # its own check of parameters
        raise Unencodable(x, f"scikit-learn refuses it ({type(error).__name__})") from None
    return Parts({"class": name, "fields": [name[1:] for name, _ in children[1:]]}, (), children)


def _sendable_field(value: Any, field: str) -> Any:
    try:
        return _sendable(value)
    except Unencodable as error:
        error.path.append(f".{field}")
        raise


def _encode_part(x: Any, limits: Limits) -> Parts:
    name = _name(x)
    entry = _listed().get(name)
    args: tuple[Any, ...] = ()
    state: Any = None
    if entry is None:
        state = x.__getstate__()
    elif entry.make == "sklearn.begin_tree":
        _, args, state = x.__reduce__()
    elif entry.make == "sklearn.triplet":
        args = tuple(x)
    elif entry.make == "sklearn.loss" and not name.endswith(":CyHalfMultinomialLoss"):
        args = x.__reduce__()[1]
    children = [(" (arguments)", _sendable(args)), (" (state)", _sendable(state))]
    return Parts({"class": name}, (), children)


def _encode_reference(x: _Reference, limits: Limits) -> Parts:
    return Parts({"name": x.name})


def _encode_bunch(x: Any, limits: Limits) -> Parts:
    if vars(x).get("_deprecated_key_to_warnings"):
        raise Unencodable(x, "it warns about some of its keys, which is not kept")
    return Parts({}, (), [("", dict(x))])


def _encode_masked(x: _MaskedObjects, limits: Limits) -> Parts:
    value = x.value
    children = [
        (".data", _sendable_array(np.asarray(value.data))),
        (".mask", np.array(np.ma.getmaskarray(value))),
        (".fill_value", value.fill_value),
    ]
    return Parts({}, (), children)


# -- receiving -----------------------------------------------------------------------------------


def _claim(node: Node) -> None:
    """Let references stand in *node*'s fields, and make numbers there fit for compiled code.

    References are built where an estimator claimed them and nowhere else.
    """
    todo = list(node.children)
    while todo:
        child = todo.pop()
        if child.serializer not in _INSIDE:
            node.refuse("a part of it is of another family", "families.child-type")
        if child.type == _REFERENCE:
            child.value = True
        if child.type == "numpy:ndarray" and child.value is not None:
            if "base" in child.meta:
                node.refuse("it repeats data in a way that safeser does not send", "families.shape")
            align(child)
        if child.serializer == "collection" or child.type in _THROUGH:
            todo.extend(child.children)


def _check_estimator(node: Node, limits: Limits) -> None:
    name, fields = node.expect("class", "fields", children=None)
    if type(name) is not str or _entry(name) is None:
        node.refuse("its class is not listed", "families.class")
    if not isinstance(fields, (list, tuple)) or not all(type(field) is str for field in fields):
        node.refuse("its fields are not names", "families.header")
    if len(node.children) != 1 + len(fields):
        node.refuse("it holds another number of values than of fields", "families.child-count")
    plain = node.children[0].value if node.children[0].serializer == "msgpack" else None
    if type(plain) is not dict or not all(type(field) is str for field in plain):
        node.refuse("its parameters are not plain", "families.child-type")
    if len({*fields, *plain}) != len(fields) + len(plain):
        node.refuse("a field is there twice", "families.duplicate-key")
    _check_version(node, name, plain.get(_VERSION, sklearn.__version__))
    _claim(node)
    node.value = limits


def _check_version(node: Node, name: str, sent: Any) -> None:
    if sent != sklearn.__version__:
        raise PayloadError(
            f"{name} was sent by scikit-learn {label(sent)[:40]}, and here is"
            f" {sklearn.__version__}: fields change their meaning between versions",
            rule="families.version",
            where=node.where,
            fix="Install one version of scikit-learn on both sides.",
        )


def _decode_estimator(node: Node, values: list[Any]) -> Any:
    plain, *parts = values
    state = {**plain, **dict(zip(node.meta["fields"], parts, strict=True))}
    with reviewed(node):
        return SHIMS["finish"](site(node, node.value), Draft(node.meta["class"]), state)


def _check_part(node: Node, limits: Limits) -> None:
    (name,) = node.expect("class", children=2)
    if type(name) is not str or not _is_part(name):
        node.refuse("its class is not listed", "families.class")
    if node.children[0].yields != "builtins:tuple":
        node.refuse("its arguments are not a tuple", "families.child-type")
    _claim(node)
    node.value = limits


def _decode_part(node: Node, values: list[Any]) -> Any:
    name, (args, state) = node.meta["class"], values
    entry, native = _listed().get(name), _natives().get(name)
    at = site(node, node.value)
    with reviewed(node):
        if native is not None:
            return _shim(native)(at, Draft(name, *args), state)
        assert entry is not None  # or _check_part() had refused the name
        made = _shim(entry.make)(at, name, *args)
        return _shim(entry.state)(at, made, state) if entry.state else made


def _shim(name: str) -> Any:
    return SHIMS[name.partition(".")[2]]


def _check_reference(node: Node, limits: Limits) -> None:
    (name,) = node.expect("name")
    entry = _listed().get(name) if type(name) is str else None
    if entry is None or entry.role != "reference":
        node.refuse("it names no function that is listed", "families.class")


def _decode_reference(node: Node, values: list[Any]) -> Any:
    if node.value is not True:
        node.refuse("a function stands outside of an estimator's field", "families.child-type")
    entry = _listed().get(node.meta["name"])
    assert entry is not None  # or _check_reference() had refused the name
    return _listed().object_of(entry)


def _check_bunch(node: Node, limits: Limits) -> None:
    node.expect(children=1)
    if node.children[0].yields != "builtins:dict":
        node.refuse("its content is not a dict", "families.child-type")


def _decode_bunch(node: Node, values: list[Any]) -> Any:
    made = Bunch()
    made.update(values[0])
    return made


def _check_masked(node: Node, limits: Limits) -> None:
    node.expect(children=3)
    data, mask, _ = node.children
    if data.type != "numpy:ndarray" or data.meta["dtype"] != "objects":
        node.refuse("its data are not an array of objects", "families.child-type")
    if mask.type != "numpy:ndarray" or mask.value is None or mask.value.dtype != bool:
        node.refuse("its mask is not an array of flags", "families.child-type")
    if mask.value.shape != tuple(data.meta["shape"]):
        node.refuse("its mask does not fit its data", "families.child-type")


def _decode_masked(node: Node, values: list[Any]) -> Any:
    data, mask, fill = values
    return np.ma.MaskedArray(data, mask=mask, fill_value=fill, copy=False)


def register() -> None:
    """List scikit-learn's types; called once, by safeser.families.science.names."""
    parts = [*_classes(lambda entry: entry.make in _ARGUMENTS)]
    parts += [Live(name).found for name in _natives()]
    for typed in (
        Typed(
            _OBJECT,
            tuple(_classes(lambda entry: entry.make == "sklearn.begin")),
            _encode_estimator,
            _check_estimator,
            _decode_estimator,
        ),
        Typed(_PART, tuple(parts), _encode_part, _check_part, _decode_part),
        Typed(_REFERENCE, (_Reference,), _encode_reference, _check_reference, _decode_reference),
        Typed(_BUNCH, (Bunch,), _encode_bunch, _check_bunch, _decode_bunch),
        Typed(_MASKED, (_MaskedObjects,), _encode_masked, _check_masked, _decode_masked),
    ):
        registry.register(typed)
    registry.advise(BaseEstimator, _UNLISTED)
