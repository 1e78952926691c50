"""What an error says: which object, where it is, and only advice that helps."""

import collections

import numpy as np
import pytest

import safeser
from safeser import SerializationError, deserialize, serialize


class Opaque:
    pass


def advice(x, families=None, **options):
    with pytest.raises(SerializationError) as caught:
        serialize(x, families, on_error="raise", **options)
    return str(caught.value)


def test_nobody_is_told_to_register_what_is_listed():
    for value in (
        collections.defaultdict(lambda: 1),
        memoryview(np.zeros(2, "S3")),
    ):
        said = advice([value])
        assert "at [0]" in said
        assert "Change that in it" in said
        assert "register" not in said


def test_a_class_of_ones_own_is_told_how_to_register():
    class Mine(np.float64):
        pass

    assert "register its own type" in advice([Mine(1)])
    assert "register_generic" in advice([Opaque()])


def test_what_the_arguments_themselves_rule_out():
    assert "iterate_collection=False" in advice([{"a": 2j}], iterate_collection=False)
    assert "iterate_collection" not in advice([Opaque()], iterate_collection=False)
    assert "Allow family msgpack too" in advice(5, ["dask"])
    assert "Allow family msgpack too" in advice([5], ["dask"], iterate_collection=False)
    assert "Allow family dask too" in advice([2j], ["msgpack"])
    pickled = safeser.Serialized(*serialize(5, ["pickle"], "raise"))
    assert "Serialize it anew" in advice([pickled])


def test_who_reads_a_failure_learns_where_the_object_is():
    with pytest.raises(SerializationError) as caught:
        deserialize(*serialize({"a": [1, Opaque()]}))
    for word in ("Opaque", "at ['a'][1]", "dask, msgpack", "register_generic"):
        assert word in str(caught.value)


def test_the_attribute_that_cannot_be_kept_is_named():
    bag = type("Bag", (), {"method": lambda self: 1})
    safeser.register_generic(bag, name="tests.messages:Bag")
    held = bag()
    held.__dict__["method"] = 5
    assert "attribute 'method'" in advice(held)
