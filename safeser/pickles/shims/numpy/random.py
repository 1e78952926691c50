"""Reviewed functions for NumPy's random generators.

The one rule: a state is set only when each of its numbers is in range. The C code does not check
it: a position beyond the end of a Mersenne Twister's key reads foreign memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.pickles.nodes import GlobalRef
from safeser.pickles.shims.site import Draft, Site, bad, begun, check_layout, plain
from safeser.types import refused

__all__ = ["KINDS", "SHIMS"]

KINDS: dict[str, Any] = {
    "MT19937": np.random.MT19937,
    "PCG64": np.random.PCG64,
    "PCG64DXSM": np.random.PCG64DXSM,
    "Philox": np.random.Philox,
    "SFC64": np.random.SFC64,
}
# Mixing entropy takes time for each pair of a word and a place in the pool.
_MAX_WORDS = 256
_MAX_POOL = 64
_UINT32 = 1 << 32
_UINT63 = 1 << 63
_UINT128 = 1 << 128


def _within(value: Any, bound: int) -> int:
    if not 0 <= plain(value, int) < bound:
        raise refused(
            "random-state", "a random generator's state holds a number that is out of range"
        )
    return value  # type: ignore[no-any-return]  # plain() proved it an int


def _words(value: Any, dtype: Any, count: int) -> Any:
    """Return a copy: the sender may hold the same array twice."""
    plain(value, np.ndarray)
    if value.dtype != dtype or value.shape != (count,):
        raise refused("random-state", "a random generator's state holds an array of another form")
    return value.copy()


def _fields(value: Any, *names: str) -> list[Any]:
    if plain(value, dict).keys() != set(names):
        raise bad("state", "a random generator's state does not have the fields of its kind")
    return [value[name] for name in names]


# -- states ------------------------------------------------------------------------------------


def _twister(state: Any) -> dict[str, Any]:
    key, position = _fields(state, "key", "pos")
    words = _words(key, np.uint32, 624)
    if not words[0] >> 31 and not words[1:].any():
        # No seed leads to this state; it draws only 0, and the C code loops for ever.
        raise refused("random-state", "a random generator's state stands still")
    return {"key": words, "pos": _within(position, 625)}


def _permuted(state: Any) -> dict[str, Any]:
    number, increment = _fields(state, "state", "inc")
    if not plain(increment, int) & 1:
        # Odd by construction; 0 stands still, as above.
        raise refused("random-state", "a random generator's state stands still")
    return {"state": _within(number, _UINT128), "inc": _within(increment, _UINT128)}


def _philox(state: Any) -> dict[str, Any]:
    counter, key = _fields(state, "counter", "key")
    return {"counter": _words(counter, np.uint64, 4), "key": _words(key, np.uint64, 2)}


def _small_fast(state: Any) -> dict[str, Any]:
    (words,) = _fields(state, "state")
    return {"state": _words(words, np.uint64, 4)}


_STATES: dict[str, Callable[[Any], dict[str, Any]]] = {
    "MT19937": _twister,
    "PCG64": _permuted,
    "PCG64DXSM": _permuted,
    "Philox": _philox,
    "SFC64": _small_fast,
}


def _checked(site: Site, kind: str, state: Any) -> dict[str, Any]:
    """Return a copy of *state*, every field of it checked."""
    fields = dict(plain(state, dict))
    if plain(fields.pop("bit_generator"), str) != kind:
        raise bad("state", "a random generator is given the state of another kind")
    inner = _STATES[kind](fields.pop("state"))
    made: dict[str, Any] = {"bit_generator": kind, "state": inner}
    if kind == "Philox":
        made["buffer"] = _words(fields.pop("buffer"), np.uint64, 4)
        made["buffer_pos"] = _within(fields.pop("buffer_pos"), 5)
    if kind != "MT19937":
        made["has_uint32"] = _within(fields.pop("has_uint32"), 2)
        made["uinteger"] = _within(fields.pop("uinteger"), _UINT32)
    if fields:
        raise bad("state", "a random generator's state does not have the fields of its kind")
    return made


# -- bit generators ----------------------------------------------------------------------------


def _kind(named: Any) -> str:
    name = named.qualname if type(named) is GlobalRef else plain(named, str)
    if name not in KINDS:
        raise bad("arguments", "a bit generator is none of NumPy's")
    return name


def _bit_generator(_: Site, __: str, named: Any = "MT19937") -> Draft:
    return Draft("bit generator", _kind(named))


def _bit_generator_state(site: Site, draft: Any, state: Any) -> Any:
    (kind,) = begun(draft, "a bit generator").parts
    # NumPy 1 wrote the state alone, and forgot what it had been seeded with.
    fields, seed = state if type(state) is tuple else (state, None)
    plain(seed, np.random.SeedSequence, type(None))
    made = KINDS[kind](0)
    made.__setstate__((_checked(site, kind, fields), seed))
    return made


# -- what draws from them ----------------------------------------------------------------------


def _source(named: Any) -> Any:
    """Return the bit generator that *named* is, or None where it is only named, as in NumPy 1."""
    return None if type(named) is str else plain(named, *KINDS.values())


def _generator(_: Site, __: str, named: Any, constructor: Any = None) -> Any:
    del constructor
    source = _source(named)
    return Draft("generator", _kind(named)) if source is None else np.random.Generator(source)


def _generator_state(site: Site, made: Any, state: Any) -> Any:
    if type(made) is not Draft:
        # NumPy 2 wrote None for a while.
        plain(state, type(None))
        return made
    (kind,) = made.parts
    return np.random.Generator(_bit_generator_state(site, Draft("bit generator", kind), state))


def _random_state(_: Site, __: str, named: Any = "MT19937", constructor: Any = None) -> Draft:
    del constructor
    source = _source(named)
    return Draft("random state", KINDS[_kind(named)](0) if source is None else source)


def _random_state_state(site: Site, draft: Any, state: Any) -> np.random.RandomState:
    (source,) = begun(draft, "a RandomState").parts
    fields = dict(plain(state, dict))
    spare = {"has_gauss": _within(fields.pop("has_gauss"), 2)}
    spare["gauss"] = plain(fields.pop("gauss"), float)
    # A reduced tree has the state of its source once.
    checked = _checked(site, type(source).__name__, fields) if fields else source.state
    made = np.random.RandomState(source)
    made.set_state({**checked, **spare})
    return made


# -- seeds -------------------------------------------------------------------------------------


def _seed(_: Site, __: str, named: Any, checksum: Any, state: Any) -> Draft:
    check_layout(np.random.SeedSequence, checksum)
    if type(named) is not GlobalRef or state is not None:
        raise bad("arguments", "a SeedSequence is begun in another way than NumPy does")
    return Draft("seed")


def _seed_state(site: Site, draft: Any, state: Any) -> np.random.SeedSequence:
    begun(draft, "a SeedSequence")
    entropy, spawned, pool, size, key = plain(state, tuple)
    for word in plain(key, tuple):
        _within(word, _UINT63)
    places = _within(size, _MAX_POOL + 1)
    numbers = entropy if type(entropy) in (list, tuple) else [entropy]
    for number in numbers:
        # scikit-learn seeds its generators with one of NumPy's own integers.
        if type(number) not in (int, np.uint64) or number < 0:
            raise refused("random-state", "a SeedSequence's entropy is not of plain integers")
    words = len(key) + sum(1 + (int(number).bit_length() >> 5) for number in numbers)
    site.copied(entropy)  # NumPy keeps the list itself
    if words > _MAX_WORDS:
        raise refused("random-state", "a SeedSequence has too much entropy")
    site.charge((words + places) * places)
    made = np.random.SeedSequence(
        entropy, spawn_key=key, pool_size=places, n_children_spawned=_within(spawned, _UINT63)
    )
    # The pool follows from the rest, so it cannot say anything else.
    if not np.array_equal(made.pool, _words(pool, np.uint32, places)):
        raise refused("random-state", "a SeedSequence's pool is not what its entropy gives")
    return made


SHIMS: dict[str, Callable[..., Any]] = {
    "bit_generator": _bit_generator,
    "bit_generator_state": _bit_generator_state,
    "generator": _generator,
    "generator_state": _generator_state,
    "random_state": _random_state,
    "random_state_state": _random_state_state,
    "seed": _seed,
    "seed_state": _seed_state,
}
