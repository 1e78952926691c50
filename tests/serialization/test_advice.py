"""What an error tells its reader to do is what would help: each advice is taken here."""

import collections
import io

import numpy as np
import pytest

import safeser
from safeser import ConfigError, Limits, PayloadError, SerializationError


class Bare:
    pass


class Hooked:
    def __setstate__(self, state):
        pass


class Grown(dict):
    pass


class Odd:
    pass


class Number(np.float64):
    pass


safeser.dask_serialize.register(Odd)(lambda x: 5)
LARGE = 1 << 10**6
HERE = "It is valid in this process only: send its content, or make it where it is used."
PICKLED = safeser.Serialized(*safeser.serialize(5, ["pickle"], "raise"))


def refusal(x, families=None, **options):
    with pytest.raises(SerializationError) as caught:
        safeser.serialize(x, families, on_error="raise", **options)
    return str(caught.value)


#: Values with words of their refusals, those that are preceded by "-" not.
ADVICE = [
    (Bare(), "register_generic", "under a policy that allows what is in it"),
    (Hooked(), "register_serialization(", "-register_generic"),
    (Grown(a=1), "register_serialization(", "-register_generic"), ([io.BytesIO()], HERE),
    ([(i for i in ())], HERE), ([io], HERE), (print, "only under a policy"),
    (LARGE, "limits=safeser.Limits"), (Odd(), "Return a dictionary of plain values"),
    ([collections.defaultdict(lambda: 1)], "at [0]", "Change that in it", "-register"),
    ([memoryview(np.zeros(2, "S3"))], "at [0]", "Change that in it", "-register"),
    ([Number(1)], "register its own type"), ([PICKLED], "Serialize it anew"),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(ADVICE)))
def test_what_helps_is_said(row):
    value, *words = ADVICE[row]
    said = refusal(value)
    for word in words:
        assert (word.removeprefix("-") in said) is not word.startswith("-")


def test_what_the_arguments_themselves_rule_out():
    assert "iterate_collection=False" in refusal([{"a": 2j}], iterate_collection=False)
    assert "iterate_collection" not in refusal([Bare()], iterate_collection=False)
    assert "Allow family msgpack too" in refusal(5, ["dask"])
    assert "Allow family dask too" in refusal([2j], ["msgpack"])


def test_what_is_not_advised_is_refused():
    for x in (Hooked(), Grown(a=1)):
        with pytest.raises(ConfigError) as caught:
            safeser.register_generic(type(x), name="tests.advice:Mine")
    with pytest.raises(ConfigError) as caught:
        safeser.register_generic(Hooked, name="tests.advice:Hooked")
    assert "register_serialization" in caught.value.fix


def test_limits_can_be_raised():
    limits = Limits(max_int=1 << 20)
    header, frames = safeser.serialize(LARGE, on_error="raise", limits=limits)
    assert safeser.deserialize(header, frames, limits=limits) == LARGE
    with pytest.raises(PayloadError) as caught:
        safeser.deserialize(*safeser.serialize(bytes(5000)), limits=Limits(max_array=1024))
    assert "limits=safeser.Limits" in caught.value.fix


def test_a_misspelt_family_cannot_steer_a_terminal():
    with pytest.raises(ConfigError) as caught:
        safeser.deserialize(*safeser.serialize(1), ["\x1b[2J" + "x" * 5000])
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
