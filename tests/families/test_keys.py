"""Keys that a peer chose to make tables slow: refused before any table is made of them."""

import decimal
import fractions
import time

import pytest

from safeser import families
from safeser.dask.wire import reader
from safeser.errors import PayloadError
from safeser.families import plain
from safeser.families.keys import table_of
from safeser.gate.values import Grant
from tests.pickles.reading.test_slots import ATTACK, HONEST

GRANT = Grant("test", ("dask", "msgpack", "pickle"))
PRIME = (1 << 61) - 1
SHARED = 12345
#: Each is equal to none of the others, and all share one hash; a Decimal converts each integer.
LARGE = [((1 << 8 * 2_000) // PRIME + step) * PRIME + SHARED for step in range(3)]
DECIMALS = [decimal.Decimal(SHARED + PRIME * step) for step in range(3)]


def refused(keys, *, members=False):
    with pytest.raises(PayloadError) as caught:
        table_of(keys, None if members else keys)
    return caught.value.rule


def test_bypass_of_cpu_keys_that_walk_past_each_other():
    """674 KB of such keys took 81 seconds."""
    assert refused(ATTACK) == refused(list(map(float, ATTACK))) == "families.hash-flood"
    with pytest.raises(PayloadError) as caught:
        plain.decode(plain.encode(dict.fromkeys(ATTACK)))
    assert caught.value.rule == "families.hash-flood"
    table_of(ATTACK)  # these are of a dict: a set looks at neighbours first


@pytest.mark.parametrize("keys", HONEST)
def test_honest_numbers_pass(keys):
    table_of(*[keys] * 2)
    table_of(keys)
    table_of(*[list(map(float, dict.fromkeys(map(float, keys))))] * 2)


def test_mixed_numbers_are_no_row():
    table_of(*[[*range(2000), 0.5]] * 2)
    table_of(*[[True, *range(2, 2000)]] * 2)
    assert refused([0, *range(2000)]) == "families.duplicate-key"


def test_bypass_of_cpu_decimals_that_share_the_hash_of_large_integers():
    """A second for each pair: 32 of either, integers of 64 KiB, are a thousand pairs in 2 MB."""
    assert {hash(key) for key in [*LARGE, *DECIMALS]} == {SHARED}
    start = time.process_time()
    for keys in (
        [*LARGE, *DECIMALS],
        [*DECIMALS, *LARGE],
        [(1, LARGE[0]), (1, DECIMALS[0])],
        [frozenset(LARGE[:1]), frozenset(DECIMALS[:1])],
        [fractions.Fraction(LARGE[0] * 7 + 1, 7), fractions.Fraction(LARGE[0] * 7 + 1, 7)],
    ):
        assert refused(keys) == "families.hash-flood"
        mixed = dict.fromkeys(range(100)) | {"text": None}
        header, frames = families.serialize({2j: [*mixed, *DECIMALS]}, ("dask", "msgpack"))
        families.deserialize(header, frames, GRANT)
    assert time.process_time() - start < 5
    # One that shares its hash with nothing is a key as others are, and small ones may share it.
    table_of(*[[LARGE[0], DECIMALS[0] + 1, "x"]] * 2)
    table_of(*[[*DECIMALS, *(SHARED + PRIME * step for step in range(7, 9))]] * 2)


def test_bypass_of_cpu_large_integers_as_keys_of_a_collection():
    header = {"serializer": "collection", "type": "set", "sub-headers": [], "frame-lengths": []}
    frames = []
    for key in (LARGE[0], DECIMALS[0]):
        inner, made = families.serialize(key, ("dask", "msgpack"))
        header["sub-headers"].append(inner)
        header["frame-lengths"].append(len(made))
        frames.extend(made)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT)
    assert caught.value.rule == "families.hash-flood"


def frozen(levels, seed=0):
    """Return the msgpack of sets in sets, no two equal, all of one hash; no set is made here."""
    if levels == 0:
        return plain.encode(SHARED + PRIME * (1 + seed))
    items = [frozen(levels - 1, step) for step in range(19)]
    items.append(frozen(levels - 1, 100 + seed))
    return b"\xdc" + (21).to_bytes(2, "big") + b"\xc7\x00\x03" + b"".join(items)


def test_bypass_of_cpu_sets_in_sets_that_share_one_hash():
    """Each member of one is compared with all of the other: 810 KB of three levels took 73 s."""
    with pytest.raises(PayloadError) as caught:
        plain.decode(frozen(2))
    assert caught.value.rule == "families.hash-flood"
    assert len(plain.decode(frozen(1))) == 20
    few = [frozenset((-1, step)) for step in range(30)] + [
        frozenset((-2, step)) for step in range(30)
    ]
    table_of(*[list(dict.fromkeys(few))] * 2)


def test_messages_of_dask_are_read_by_the_same_rule():
    """Their reader only counted equal hashes."""
    with pytest.raises(PayloadError) as caught:
        reader.check_hashes("a key", ATTACK)
    assert caught.value.rule == "payload.hash-flood"
    reader.check_hashes("a key", HONEST[0])
