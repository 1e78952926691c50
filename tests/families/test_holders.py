"""Patterns, random generators, broken-down times and user classes: through reviewed functions."""

import collections
import random
import re
import time

import pytest
from families_attack import FAMILIES, GRANT, sent_as, through

from safeser import families
from safeser.errors import PayloadError, SafeserError
from safeser.families import plain
from tests.pickles.forging import Called


def typed(name, **meta):
    return {"serializer": "dask", "type": name, "sub-header": meta}


@pytest.mark.parametrize("drawn", [0, 1, 624, 5000])
def test_random_generators_go_on_where_they_were(drawn):
    sent = random.Random(5)
    for _ in range(drawn):
        sent.random()
    sent.gauss(0, 1)
    back = through(sent)
    assert back.getstate() == sent.getstate()
    assert back.gauss(0, 1) == sent.gauss(0, 1)
    sent.extra = 1
    with pytest.raises(SafeserError, match="attributes"):
        through(sent)


STATE = random.Random(5).getstate()


MAKE = random.Random(5).__reduce__()[0]


def random_of(*state):
    return Called(MAKE, state=state)


def time_of(*parts):
    return Called(time.struct_time, *parts)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("re:Pattern", Called(re._compile, "a" * 5000, 32)),
        ("re:Pattern", Called(re._compile, "(?i)[\0-\U0010ffff]" * 9, 34)),
        ("re:Pattern", Called(re._compile, "(", 32)),
        ("re:Pattern", Called(re._compile, "a", 1 << 20)),
        ("re:Pattern", Called(re._compile, "a")),
        ("re:Pattern", Called(re._compile, 5, 32)),
        ("re:Pattern", "a"),
        ("re:Pattern", time_of((1,) * 9)),
        ("time:struct_time", time_of((1,) * 8)),
        ("time:struct_time", time_of((1.5,) * 9)),
        ("time:struct_time", time_of((1 << 40,) * 9)),
        ("time:struct_time", time_of((1,) * 9, {"tm_zone": "x" * 9999})),
        ("random:Random", random_of(3, STATE[1][:-1], None)),
        ("random:Random", random_of(3, (*STATE[1][:-1], 700), None)),
        ("random:Random", random_of(2, STATE[1], None)),
        ("random:Random", random_of(3, (0,) * 625, None)),
        ("random:Random", random_of(*STATE[1])),
    ],
)
def test_what_reviewed_functions_refuse(name, value):
    header, frames = sent_as(name, value)
    families.check(header, frames)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT)
    assert caught.value.rule.startswith(("families.", "value."))


@pytest.mark.parametrize("tree", ["text", None, [], b"", b"\xc1", bytes(1025)])
def test_a_header_holds_a_short_tree(tree):
    with pytest.raises(PayloadError) as caught:
        families.check(typed("re:Pattern", tree=tree), [])
    assert caught.value.rule.startswith("families.")


def test_a_tree_has_one_place():
    header, frames = families.serialize(random.Random(5), FAMILIES)
    assert header["sub-header"] == {}
    short, _ = families.serialize(re.compile("a"), FAMILIES)
    tree = short["sub-header"]["tree"]
    for wrong in (
        ({**short, "sub-header": {}}, [tree]),
        ({**short, "sub-header": {}}, []),
        (short, [b"a"]),
        ({**short, "sub-header": {"tree": tree, "more": 1}}, []),
        (header, [*frames, b"a"]),
        (header, [frames[0][:-1]]),
    ):
        with pytest.raises(PayloadError):
            families.check(*wrong)


def test_user_classes_hold_what_they_say():
    for cls, wrong in ((collections.UserDict, []), (collections.UserList, {})):
        made = cls()
        made.data = wrong
        with pytest.raises(SafeserError, match="holds no"):
            through(made)
        header = typed(f"collections:{cls.__name__}")
        header |= {"sub-headers": [{"serializer": "msgpack"}], "frame-lengths": [1]}
        with pytest.raises(PayloadError):
            families.deserialize(header, [plain.encode(wrong)], GRANT)


def test_compiling_is_charged_to_the_message():
    # One takes 2 ms: ten thousand of them are a message of ten megabytes.
    long = [re.compile("a" * 990 + str(number)) for number in range(40)]
    header, frames = families.serialize(long, FAMILIES)
    with pytest.raises(PayloadError) as caught:
        families.deserialize(header, frames, GRANT)
    assert caught.value.rule == "families.max-refs"
    short = [re.compile(f"a{number}") for number in range(40)]
    assert through(short) == short
