"""Equal values have equal tokens, different ones have different tokens, over generated values."""

from __future__ import annotations

import copy
import pickle
from collections import OrderedDict

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numpy_strategies

from safeser import tokenize
from safeser.tokens import tokenize_in_order

atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.text(),
    st.binary(),
)
hashable = st.recursive(
    atoms,
    lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=4)),
    max_leaves=6,
)
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=4),
        st.dictionaries(hashable, inner, max_size=3),
        st.sets(hashable, max_size=4),
        st.frozensets(hashable, max_size=4),
        st.dictionaries(st.text(max_size=2), inner, max_size=3).map(OrderedDict),
    ),
    max_leaves=12,
)


def canonical(value):
    """State what a token depends on, in another way: text, exact about types and floats."""
    if isinstance(value, (float, complex)):
        return f"{type(value).__name__} {np.asarray(value).tobytes().hex()}"
    if isinstance(value, (set, frozenset)):
        inner = sorted(map(canonical, value))
    elif isinstance(value, OrderedDict):
        inner = [(canonical(key), canonical(each)) for key, each in value.items()]
    elif isinstance(value, dict):
        inner = sorted((canonical(key), canonical(each)) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        inner = list(map(canonical, value))
    else:
        inner = value
    return repr((type(value).__name__, inner))


@given(values, values)
def test_tokens_are_equal_if_and_only_if_the_values_are(one, other):
    assert (tokenize(one) == tokenize(other)) == (canonical(one) == canonical(other))


@given(values)
def test_copies_have_the_same_token(value):
    token = tokenize(value, ensure_deterministic=True)
    assert tokenize(value) == token
    for made in (
        copy.deepcopy(value), pickle.loads(pickle.dumps(value)),
        cloudpickle.loads(cloudpickle.dumps(value)),
    ):  # fmt: skip
        assert tokenize(made) == token


@given(values, st.data())
def test_every_mutation_changes_the_token(value, data):
    """Replace one part, wherever it is, by another one."""
    paths = list(places(value))
    path = data.draw(st.sampled_from(paths))
    new = data.draw(atoms)
    changed = replaced(value, path, new)
    assert (tokenize(changed) == tokenize(value)) == (canonical(changed) == canonical(value))


def places(value, path=()):
    yield path
    if isinstance(value, (list, tuple)):
        for at, each in enumerate(value):
            yield from places(each, (*path, at))
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*path, key))


def replaced(value, path, new):
    if not path:
        return new
    first, *rest = path
    if isinstance(value, dict):
        return type(value)(
            (key, replaced(each, rest, new) if key is first else each)
            for key, each in value.items()
        )
    return type(value)(
        replaced(each, rest, new) if at == first else each for at, each in enumerate(value)
    )


@given(values)
def test_it_does_not_count_what_is_shared(value):
    assert tokenize([value, value]) == tokenize([value, copy.deepcopy(value)])
    assert tokenize((value, [value])) == tokenize(pickle.loads(pickle.dumps((value, [value]))))


@pytest.mark.slow
@given(st.lists(hashable, max_size=8, unique=True), st.randoms())
def test_the_order_in_which_a_set_or_dict_was_filled_does_not_count(items, random):
    shuffled = random.sample(items, len(items))
    assert tokenize(set(items)) == tokenize(set(shuffled))
    assert tokenize(dict.fromkeys(items, 1)) == tokenize(dict.fromkeys(shuffled, 1))


arrays = numpy_strategies.arrays(
    dtype=st.one_of(
        numpy_strategies.scalar_dtypes(),
        numpy_strategies.array_dtypes(numpy_strategies.scalar_dtypes(), max_size=3),
    ),
    shape=numpy_strategies.array_shapes(min_dims=0, max_side=3),
)


@given(arrays)
def test_arrays_count_by_their_values_whatever_their_memory(array):
    token = tokenize(array, ensure_deterministic=True)
    assert tokenize(pickle.loads(pickle.dumps(array))) == token
    assert tokenize(copy.deepcopy(array)) == token
    assert tokenize(np.asfortranarray(array)) == token or array.ndim == 0
    if array.ndim:
        assert tokenize(np.repeat(array, 2, axis=0)[::2]) == token
    if array.size:
        assert tokenize(array[np.newaxis]) != token
        assert tokenize(array.reshape(-1)[:-1]) != token


@pytest.mark.parametrize("wrap", [lambda each: each, lambda each: [each], lambda each: (1, each)])
@pytest.mark.parametrize("items", [[("a", 1), ("b", 2)], [("a", [1]), ("b", 2)], [(1, 2), (3, 4)]])
def test_the_order_of_a_dictionary_counts_where_a_token_is_asked_for_in_order(wrap, items):
    first, second = wrap(dict(items)), wrap(dict(items[::-1]))
    assert tokenize(first) == tokenize(second)
    assert tokenize_in_order(first) != tokenize_in_order(second)
    assert tokenize_in_order(first) == tokenize_in_order(copy.deepcopy(first))
    assert tokenize_in_order(first) != tokenize(first)
