"""References to objects on the cluster, as data: futures, actors, persisted collections.

The one rule: a reference is a key and names. No class, method or graph comes with it; building one
from a peer's message runs nothing, and a process that uses it asks as its own principal, under its
own policy.
"""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

from dask.base import DaskMethodsMixin
from distributed import Actor, Future

from safeser.dask.clients.dask_collections import ADVICE, describe, results_of
from safeser.dask.contents.substitutes import remote_type
from safeser.errors import PayloadError
from safeser.families import Node, Parts, Typed, registry
from safeser.families.plain import Unencodable
from safeser.gate.values import Limits

__all__ = ["register"]

_SCHEME = "safeser://"

_KEYS = frozenset({"builtins:str", "builtins:tuple", "builtins:int", "builtins:bytes"})

#: Longer than any real class's, method's or host's name.
_MAX_TEXT = 300

#: More than any real class has: each becomes a function.
_MAX_NAMES = 1000

_FUTURE, _ACTOR = "distributed:Future", "distributed:Actor"
_PERSISTED = "safeser.dask:Persisted"


def _check_key(node: Node, child: Node) -> None:
    if child.yields not in _KEYS:
        node.refuse("its key is none", "families.child-type")


# -- futures -------------------------------------------------------------------------------------


def _check_future(node: Node, limits: Limits) -> None:
    node.expect(children=1)
    _check_key(node, node.children[0])


_FUTURES = Typed(
    _FUTURE,
    (Future,),
    lambda x, _: Parts({}, (), [(".key", x.key)]),
    _check_future,
    # It belongs to no client yet, and holds nothing on the cluster until one takes it.
    lambda _, values: Future(values[0]),
)


# -- actors --------------------------------------------------------------------------------------


def _encode_actor(x: Actor, limits: Limits) -> Parts:
    cls = x._cls
    methods: list[str] = []
    attributes: list[str] = []
    for name in dir(cls):
        if _is_public(name):
            found = inspect.getattr_static(cls, name)
            calls = callable(found) or isinstance(found, classmethod)
            (methods if calls else attributes).append(name)
    if len(methods) + len(attributes) > _MAX_NAMES or not str(x._address).startswith(_SCHEME):
        raise Unencodable(x, "its class has too many names, or it lives on no safeser:// address")
    meta = {
        "class": f"{cls.__module__}:{cls.__qualname__}"[:_MAX_TEXT],
        "address": x._address,
        "methods": methods,
        "attributes": attributes,
    }
    return Parts(meta, (), [(".key", x.key)])


def _is_public(name: Any) -> bool:
    """Tell whether *name* is one that a class may be given without meaning more than a name."""
    fits = type(name) is str and len(name) <= _MAX_TEXT and name.isidentifier()
    return fits and not name.startswith("__")


def _check_actor(node: Node, limits: Limits) -> None:
    cls, address, methods, attributes = node.expect(
        "class", "address", "methods", "attributes", children=1
    )
    for text in (cls, address):
        if type(text) is not str or len(text) > _MAX_TEXT or not text.isprintable():
            node.refuse("its class or address is none", "families.header")
    if not address.startswith(_SCHEME):
        node.refuse(f"it lives on no {_SCHEME} address", "families.header")
    for names in (methods, attributes):
        if not isinstance(names, (list, tuple)) or not all(map(_is_public, names)):
            node.refuse("what it offers is not named", "families.header")
    if len(methods) + len(attributes) > _MAX_NAMES:
        node.refuse("it offers too much", "families.too-large")
    _check_key(node, node.children[0])


def _decode_actor(node: Node, values: list[Any]) -> Actor:
    made = remote_type(node.meta["class"])
    for name in node.meta["attributes"]:
        setattr(made, name, None)
    for name in node.meta["methods"]:
        # Dask looks whether it can be called, and takes its name and documentation.
        setattr(made, name, partial(_elsewhere, name))
    return Actor(made, node.meta["address"], values[0])


def _elsewhere(name: str, *args: Any, **kwargs: Any) -> None:
    raise PayloadError(f"{name} is a method on the worker that has the actor", rule="dask.actor")


# -- collections over results --------------------------------------------------------------------


def _encode_persisted(x: Any, limits: Limits) -> Parts:
    try:
        described = describe(x)
    except PayloadError as error:
        raise Unencodable(x, error.message) from None
    results = results_of(x)
    if described.count > limits.elements or not all(
        type(results.get(key)) is Future
        for key in described.keys()  # noqa: SIM118 - no mapping
    ):
        raise Unencodable(x, ADVICE[0], fix=ADVICE[1])
    return Parts({}, (), [("", described)])


def _check_persisted(node: Node, limits: Limits) -> None:
    node.expect(children=1)
    if node.children[0].yields != "safeser.dask:Described":
        node.refuse("it holds no description of a collection", "families.child-type")


def register() -> None:
    """List futures, actors and persisted collections; a second call does nothing."""
    if registry.knows(_FUTURE):
        return
    for typed in (
        _FUTURES,
        Typed(_ACTOR, (Actor,), _encode_actor, _check_actor, _decode_actor),
        # What derives from it is checked by describe(): exact names of Dask's own classes.
        Typed(
            _PERSISTED,
            (DaskMethodsMixin,),
            _encode_persisted,
            _check_persisted,
            lambda _, values: values[0].collection(Future),
            subclasses=True,
        ),
    ):
        registry.register(typed)
