"""NumPy's sources of random numbers of family ``dask``: generators, their states, their seeds.

The one rule: a state reaches NumPy only through the checks that pickles go through, each number in
its range. C draws from it without a look: a position behind the end of a Mersenne Twister's key
reads foreign memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator, RandomState, SeedSequence

from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.reviewed import reviewed, site
from safeser.families.tree import Node
from safeser.pickles.shims import numpy_random
from safeser.pickles.shims.site import Site
from safeser.values import Limits

__all__ = ["register"]

_BITS, _SEEDS = "numpy.random:BitGenerator", "numpy.random:SeedSequence"

#: What a state holds in arrays, and of which numbers they are.
_WORDS = {"pool": "<u4", "counter": "<u8", "buffer": "<u8", "state": "<u8"}
_KEYS = {"MT19937": "<u4", "Philox": "<u8"}


def _site(limits: Limits) -> Site:
    return Site(limits, given=limits.max_bytes, shared=False)


def _packed(state: Any) -> Any:
    """Return *state* with each array as little-endian bytes, which are plain."""
    if isinstance(state, dict):
        return {name: _packed(value) for name, value in state.items()}
    if isinstance(state, np.ndarray):
        return state.astype(state.dtype.newbyteorder("<")).tobytes()
    return state


def _unpacked(state: Any, kind: str, name: str = "") -> Any:
    """Return what :func:`_packed` was given; ValueError if some bytes are no such array."""
    if type(state) is dict:
        return {key: _unpacked(value, kind, key) for key, value in state.items()}
    if type(state) is bytes:
        words = np.frombuffer(state, _KEYS.get(kind, "<u8") if name == "key" else _WORDS[name])
        return words.astype(words.dtype.newbyteorder("="))
    return state


def _encode_bits(x: Any, limits: Limits) -> Parts:
    seeds = x.seed_seq
    if seeds is not None and type(seeds) is not SeedSequence:
        raise Unencodable(x, "it was seeded by a class of somebody's own")
    state = x.state
    # As below.
    numpy_random.bit_generator(_site(limits), state["bit_generator"], state)
    children = [(" (state)", _packed(state)), (".seed_seq", seeds)]
    return Parts({"kind": state["bit_generator"]}, (), children)


def _plain_child(node: Node, position: int) -> Any:
    child = node.children[position]
    if child.serializer != "msgpack":
        node.refuse("its state is not of plain values", "families.child-type")
    return child.value


def _state_of(node: Node, kind: str) -> Any:
    try:
        return _unpacked(_plain_child(node, 0), kind)
    except (ValueError, LookupError):
        node.refuse("its state holds what is no row of numbers", "families.value")


def _check_bits(node: Node, limits: Limits) -> None:
    (kind,) = node.expect("kind", children=2)
    if type(kind) is not str:
        node.refuse("its kind is not a name", "families.header")
    seeds = node.children[1]
    if seeds.yields not in (_SEEDS, "builtins:NoneType"):
        node.refuse("its seed is none of NumPy's", "families.child-type")
    with reviewed(node):
        node.value = numpy_random.bit_generator(site(node, limits), kind, _state_of(node, kind))


def _decode_bits(node: Node, values: list[Any]) -> Any:
    made = node.value
    if values[1] is not None:
        made.__setstate__((made.state, values[1]))
    return made


def _encode_generator(x: Generator, limits: Limits) -> Parts:
    return Parts({}, (), [(".bit_generator", x.bit_generator)])


def _check_generator(node: Node, limits: Limits) -> None:
    node.expect(children=1)
    _expect_bits(node)


def _expect_bits(node: Node) -> None:
    if node.children[0].yields != _BITS:
        node.refuse("it does not draw from a bit generator of NumPy's", "families.child-type")


def _decode_generator(node: Node, values: list[Any]) -> Generator:
    return Generator(values[0])


def _encode_random_state(x: RandomState, limits: Limits) -> Parts:
    state: Any = x.get_state(legacy=False)
    meta = {"has_gauss": state["has_gauss"], "gauss": state["gauss"]}
    return Parts(meta, (), [(" (bit generator)", _source_of(x))])


def _source_of(x: RandomState) -> Any:
    # RandomState has no public name for it; its pickles have always carried it.
    return x._bit_generator


def _check_random_state(node: Node, limits: Limits) -> None:
    has_gauss, gauss = node.expect("has_gauss", "gauss", children=1)
    _expect_bits(node)
    if has_gauss not in (0, 1) or type(has_gauss) is not int or type(gauss) is not float:
        node.refuse("its spare number is none", "families.header")


def _decode_random_state(node: Node, values: list[Any]) -> RandomState:
    (source,) = values
    made = RandomState(source)
    made.set_state({**source.state, **node.meta})
    return made


def _encode_seeds(x: SeedSequence, limits: Limits) -> Parts:
    entropy: Any = x.entropy
    state = (entropy, x.n_children_spawned, x.pool, x.pool_size, x.spawn_key)
    # Whoever receives it would refuse what this refuses.
    numpy_random.seed_sequence(_site(limits), state)
    meta = {
        "spawned": x.n_children_spawned,
        "size": x.pool_size,
        "pool": _packed(x.pool),
        "uint64": [type(number) is np.uint64 for number in _listed(entropy)],
    }
    plain_one = type(entropy)(map(int, entropy)) if type(entropy) in _ROWS else int(entropy)
    return Parts(meta, (), [(".entropy", (plain_one, x.spawn_key))])


def _listed(entropy: Any) -> Any:
    return entropy if type(entropy) in _ROWS else [entropy]


_ROWS = (list, tuple)


def _check_seeds(node: Node, limits: Limits) -> None:
    spawned, size, pool, wide = node.expect("spawned", "size", "pool", "uint64", children=1)
    described = _plain_child(node, 0)
    if type(described) is not tuple or len(described) != 2 or type(pool) is not bytes:
        node.refuse("it is not described by entropy, key and pool", "families.header")
    entropy, key = described
    try:
        words = _unpacked(pool, "", "pool")
    except ValueError:
        node.refuse("its pool is no row of numbers", "families.value")
    with reviewed(node):
        state = (_typed(node, entropy, wide), spawned, words, size, key)
        node.value = numpy_random.seed_sequence(site(node, limits), state)


def _typed(node: Node, entropy: Any, wide: Any) -> Any:
    """Return *entropy* with NumPy's integers where *wide* says; scikit-learn seeds with them."""
    numbers = _listed(entropy)
    if type(wide) not in _ROWS or len(wide) != len(numbers):
        node.refuse("its entropy is not of the types that it says", "families.header")
    made = [_number(node, *pair) for pair in zip(numbers, wide, strict=True)]
    return type(entropy)(made) if type(entropy) in _ROWS else made[0]


def _number(node: Node, number: Any, wide: Any) -> Any:
    if wide is False:
        return number
    if wide is not True or type(number) is not int or not 0 <= number < 1 << 64:
        node.refuse("its entropy is not of the types that it says", "families.header")
    return np.uint64(number)


def _decode_seeds(node: Node, values: list[Any]) -> SeedSequence:
    return node.value  # type: ignore[no-any-return]  # the check made it


def register() -> None:
    """List what numpy.random has; called when one of it is first sent or loaded."""
    kinds = tuple(getattr(np.random, kind) for kind in numpy_random.KINDS)
    for typed in (
        Typed(_BITS, kinds, _encode_bits, _check_bits, _decode_bits),
        Typed(_SEEDS, (SeedSequence,), _encode_seeds, _check_seeds, _decode_seeds),
        Typed(
            "numpy.random:Generator",
            (Generator,),
            _encode_generator,
            _check_generator,
            _decode_generator,
        ),
        Typed(
            "numpy.random:RandomState",
            (RandomState,),
            _encode_random_state,
            _check_random_state,
            _decode_random_state,
        ),
    ):
        registry.register(typed)
