"""Encode and decode containers of the standard library, such as deque and SimpleNamespace.

The one rule: their elements are values of the tree, checked and decided like all others; the
arguments of their constructors, factories and lengths, are listed or are bounded numbers.
"""

from __future__ import annotations

import types
from collections import ChainMap, Counter, OrderedDict, UserDict, UserList, defaultdict, deque
from collections.abc import Callable
from typing import Any, TypeVar

from safeser.families import records
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry, singleton
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.types import stdlib as bounds

__all__ = ["around", "register"]

K = TypeVar("K")


def _encode_slice(x: slice, limits: Limits) -> Parts:
    return Parts({}, (), [(".start", x.start), (".stop", x.stop), (".step", x.step)])


def _children(count: int | None) -> Callable[[Node, Limits], None]:
    """Return a check of objects that hold *count* values, or any number of them, and no more."""

    def check(node: Node, limits: Limits) -> None:
        node.expect(children=count)

    return check


def _holds(node: Node, kind: str) -> None:
    """Refuse *node* unless its one child is a *kind*; what a pickle holds shows when built."""
    if node.children[0].yields not in ("", f"builtins:{kind}"):
        node.refuse(f"it does not hold a {kind}", "families.child-type")


def _held(values: list[Any], kind: type[K]) -> K:
    """Return the one value in *values*, which is a *kind* of what was decided and checked."""
    if type(values[0]) is not kind:
        raise ValueError
    return values[0]


def _encode_deque(x: deque[Any], limits: Limits) -> Parts:
    return Parts({"maxlen": x.maxlen}, (), [("", list(x))])


def _check_deque(node: Node, limits: Limits) -> None:
    (maxlen,) = node.expect("maxlen", children=1)
    if type(maxlen) not in (int, type(None)):
        node.refuse("its maxlen is not a length", "families.header")
    _holds(node, "list")


def _decode_deque(node: Node, values: list[Any]) -> deque[Any]:
    return bounds.deque_of(_held(values, list), node.meta["maxlen"])


def around(
    name: str,
    cls: type,
    kind: type,
    content: Callable[[Any], Any],
    make: Callable[[Any], Any],
    *,
    label: str = "",
) -> Typed:
    """Return the serializer of objects that consist of one list or dict.

    :param kind: exact type of what they consist of.
    :param content: returns it; raises Unencodable for an object that has more.
    :param make: returns the object that consists of what was decided and checked.
    :param label: of the content, in errors.
    """

    def check(node: Node, limits: Limits) -> None:
        node.expect(children=1)
        _holds(node, kind.__name__)

    return Typed(
        name,
        (cls,),
        lambda x, limits: Parts({}, (), [(label, content(x))]),
        check,
        lambda node, values: make(_held(values, kind)),
    )


def _counted(x: Counter[Any]) -> dict[Any, Any]:
    if vars(x):
        raise Unencodable(x, "it has attributes of its own")
    return dict(x)


def _counter_of(content: dict[Any, Any]) -> Counter[Any]:
    made: Counter[Any] = Counter()
    dict.update(made, content)  # Counter's own update() adds, and counts may be anything
    return made


def _user(name: str, cls: Any, kind: type) -> Typed:
    def content(x: Any) -> Any:
        if vars(x).keys() != {"data"} or type(x.data) is not kind:
            raise Unencodable(x, f"it has attributes of its own, or holds no {kind.__name__}")
        return x.data

    def make(content: Any) -> Any:
        made = cls()
        made.data = content
        return made

    return around(name, cls, kind, content, make, label=".data")


def _view(take: Any) -> Typed:
    """Return the serializer of what the method *take* of a dict returns: a view of a copy."""
    cls = type(take({}))
    return around(
        f"builtins:{cls.__name__}", cls, dict, lambda x: dict(x.mapping), take, label=".mapping"
    )


def _encode_ordered(x: OrderedDict[Any, Any], limits: Limits) -> Parts:
    attributes = vars(x)
    bounds.ordered_of(OrderedDict(), attributes)
    held = [(f".{name}", value) for name, value in attributes.items()]
    return Parts({"attributes": list(attributes)}, (), [("", dict(x)), *held])


def _check_ordered(node: Node, limits: Limits) -> None:
    (names,) = node.expect("attributes", children=None)
    if type(names) not in (list, tuple) or not all(type(name) is str for name in names):
        node.refuse("its attributes have no names", "families.header")
    if len(node.children) != 1 + len(names):
        node.refuse("it holds more than its content", "families.child-count")
    _holds(node, "dict")


def _decode_ordered(node: Node, values: list[Any]) -> OrderedDict[Any, Any]:
    made = OrderedDict(_held(values[:1], dict))
    return bounds.ordered_of(made, dict(zip(node.meta["attributes"], values[1:], strict=True)))


def _encode_defaultdict(x: defaultdict[Any, Any], limits: Limits) -> Parts:
    factory = x.default_factory
    name = "" if factory is None else getattr(factory, "__name__", "")
    if factory is not bounds.FACTORIES.get(name):
        raise Unencodable(x, "its default factory is not one of the listed builtin types")
    return Parts({"factory": name}, (), [("", dict(x))])


def _check_defaultdict(node: Node, limits: Limits) -> None:
    (factory,) = node.expect("factory", children=1)
    if type(factory) is not str or (factory and factory not in bounds.FACTORIES):
        node.refuse("its default factory is not listed", "families.factory")
    _holds(node, "dict")


def _decode_defaultdict(node: Node, values: list[Any]) -> defaultdict[Any, Any]:
    return defaultdict(bounds.FACTORIES.get(node.meta["factory"]), _held(values, dict))


def _encode_chain(x: ChainMap[Any, Any], limits: Limits) -> Parts:
    if vars(x).keys() != {"maps"} or type(x.maps) is not list:
        raise Unencodable(x, "it has attributes of its own")
    bounds.chain_of(x.maps)
    return Parts({}, (), [(f".maps[{n}]", inner) for n, inner in enumerate(x.maps)])


def _encode_namespace(x: types.SimpleNamespace, limits: Limits) -> Parts:
    bounds.check_attributes(vars(x))
    return records.encode(vars(x), limits)


def _check_namespace(node: Node, limits: Limits) -> None:
    bounds.check_attributes(records.check(node, limits))


def _decode_namespace(node: Node, values: list[Any]) -> types.SimpleNamespace:
    made = types.SimpleNamespace()
    vars(made).update(records.values(node, values))
    return made


def register() -> None:
    """List the containers; called once, when safeser.families is imported."""
    for cls, encode, check, decode, keeps in (
        (slice, _encode_slice, _children(3), lambda _, values: slice(*values), False),
        (deque, _encode_deque, _check_deque, _decode_deque, True),
        (OrderedDict, _encode_ordered, _check_ordered, _decode_ordered, True),
        (defaultdict, _encode_defaultdict, _check_defaultdict, _decode_defaultdict, True),
        (
            ChainMap,
            _encode_chain,
            _children(None),
            lambda _, values: bounds.chain_of(values),
            False,
        ),
        (types.SimpleNamespace, _encode_namespace, _check_namespace, _decode_namespace, True),
    ):
        name = f"{cls.__module__}:{cls.__name__}"
        registry.register(Typed(name, (cls,), encode, check, decode, keeps=keeps))
    for typed in (
        singleton("builtins:ellipsis", ...),
        singleton("builtins:NotImplementedType", NotImplemented),
        around("collections:Counter", Counter, dict, _counted, _counter_of),
        _user("collections:UserDict", UserDict, dict),
        _user("collections:UserList", UserList, list),
        *map(_view, (dict.keys, dict.values, dict.items)),
        around("builtins:mappingproxy", types.MappingProxyType, dict, dict, types.MappingProxyType),
    ):
        registry.register(typed)
