"""What an error tells its reader to do is what would help: each advice is taken here."""

import collections
import dataclasses
import enum
import io
import pickle

import pydantic
import pytest

import safeser
from safeser import ConfigError, Limits, PayloadError, SerializationError

PICKLE = "under a policy that allows what is in it"


class Bare:
    pass


class Hooked:
    def __setstate__(self, state):
        pass


class Grown(dict):
    pass


def refusal(x, families=None):
    with pytest.raises(SerializationError) as caught:
        safeser.serialize(x, families, on_error="raise")
    return caught.value.fix


def test_register_generic_is_named_only_for_what_it_takes():
    assert "register_generic" in refusal(Bare())
    for x in (Hooked(), Grown(a=1)):
        assert "register_serialization(" in refusal(x)
        assert "register_generic" not in refusal(x)
        with pytest.raises(ConfigError):
            safeser.register_generic(type(x), name="tests.advice:Mine")


def test_hooks_are_told_of_functions_not_of_another_refusal():
    with pytest.raises(ConfigError) as caught:
        safeser.register_generic(Hooked, name="tests.advice:Hooked")
    assert "register_serialization" in caught.value.fix


@pytest.mark.parametrize("x", [io.BytesIO(), (i for i in ()), io], ids=["file", "generator", "mod"])
def test_what_stands_for_something_here_is_not_sent_to_pickle(x):
    assert (
        refusal([x])
        == "It is valid in this process only: send its content, or make it where it is used."
    )


def test_pickle_and_code_need_a_policy():
    assert PICKLE in refusal(Bare())
    assert "only under a policy" in refusal(print)


def test_a_limit_is_told_to_be_raised():
    large = 1 << 10**6
    assert "limits=safeser.Limits" in refusal(large)
    limits = Limits(max_int=1 << 20)
    header, frames = safeser.serialize(large, on_error="raise", limits=limits)
    assert safeser.deserialize(header, frames, limits=limits) == large
    with pytest.raises(PayloadError) as caught:
        safeser.deserialize(*safeser.serialize(bytes(5000)), limits=Limits(max_array=1024))
    assert "limits=safeser.Limits" in caught.value.fix


def test_a_misspelt_family_is_named_and_cannot_steer_a_terminal():
    with pytest.raises(ConfigError, match="'daks'"):
        safeser.serialize(1, ["daks"])
    with pytest.raises(ConfigError) as caught:
        safeser.deserialize(*safeser.serialize(1), ["\x1b[2J" + "x" * 5000])
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000


class Odd:
    pass


def test_functions_that_return_something_else_are_told_what_to_return():
    safeser.dask_serialize.register(Odd)(lambda x: 5)
    assert refusal(Odd()).startswith("Return a dictionary of plain values")


@pytest.mark.parametrize("data", [b"", b"abc", bytes(3)])
def test_bytes_of_something_else_are_called_so(data):
    with pytest.raises(PayloadError) as caught:
        safeser.deserialize_bytes(data)
    assert "serialize_bytes did not write this" in caught.value.fix
    with pytest.raises(PayloadError) as caught:
        safeser.deserialize_bytes("text")
    assert "serialize_bytes returned" in caught.value.fix


def test_registering_twice_says_once():
    def register():
        safeser.register_generic(Bare, name="tests.advice:Bare")

    register()
    with pytest.raises(ConfigError) as caught:
        register()
    assert "tests.advice:Bare" in caught.value.message
    assert "once" in caught.value.fix


class Failing:
    pass


class Other:
    pass


def test_a_function_that_fails_is_told_from_one_that_returns_something_else():
    safeser.register_serialization(Failing, lambda x: ({}, []), lambda header, frames: 1 / 0)
    safeser.register_serialization(Other, lambda x: ({}, []), lambda header, frames: 5)
    with pytest.raises(PayloadError) as caught:
        safeser.deserialize(*safeser.serialize(Failing()))
    assert caught.value.fix == "The cause is chained to this error."
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(PayloadError, match="returned no instance of it"):
        safeser.deserialize(*safeser.serialize(Other()))


def test_a_pickle_that_is_cut_off_is_called_so():
    data = pickle.dumps(list(range(1000)))
    with pytest.raises(PayloadError) as caught:
        safeser.pickles.loads(data[:-10])
    assert "The end is missing" in caught.value.fix


def test_register_class_is_named_for_what_it_takes():
    class Model(pydantic.BaseModel):
        size: int

    class Color(enum.Enum):
        RED = 1

    @dataclasses.dataclass
    class Record:
        size: int

    for x in (Model(size=1), Color.RED, Record(1), collections.namedtuple("Pair", "a b")(1, 2)):
        assert refusal([x]).startswith("Register its class on both sides: safeser.register_class(")
        name = f"tests.advice:{type(x).__name__}"
        safeser.register_class(type(x), name=name)
        assert safeser.deserialize(*safeser.serialize([x])) == [x]
