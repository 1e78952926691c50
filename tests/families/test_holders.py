"""Patterns, random generators, broken-down times and user classes: through reviewed functions."""

import collections
import random

import pytest
from families_attack import GRANT, through

from safeser import families
from safeser.errors import PayloadError, SafeserError
from safeser.families import plain


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("re:Pattern", ("a" * 5000, 32)),
        ("re:Pattern", ("(?i)[\0-\U0010ffff]" * 9, 34)),
        ("re:Pattern", ("(", 32)),
        ("re:Pattern", ("a", 1 << 20)),
        ("re:Pattern", ("a", 0)),  # text always has re.UNICODE
        ("re:Pattern", "a"),
        ("re:Pattern", (5, 32)),
        ("time:struct_time", ((1,) * 8, None, None)),
        ("time:struct_time", ((1.5,) * 9, None, None)),
        ("time:struct_time", ((1 << 40,) * 9, None, None)),
        ("time:struct_time", ((1,) * 9, "x" * 9999, None)),
        ("random:Random", (3, STATE[1][:-1], None)),
        ("random:Random", (3, (*STATE[1][:-1], 700), None)),
        ("random:Random", (2, STATE[1], None)),
        ("random:Random", (3, (0,) * 625, None)),
        ("random:Random", STATE[1]),
    ],
)
def test_what_reviewed_functions_refuse(name, value):
    with pytest.raises(PayloadError) as caught:
        families.deserialize(typed(name, value=plain.encode(value)), [], GRANT)
    assert caught.value.rule.startswith(("families.", "value."))
    with pytest.raises(PayloadError):
        families.check(typed(name, value="text"), [])


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
