"""What a refusal advises is enough, in one step, and holds nothing that is needless."""

from __future__ import annotations

import collections
import pickle
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from safeser.errors import PolicyDenied
from safeser.pickles import Profile, inspect, loads

OBJECTS = {
    "array": np.arange(3),
    "array of objects": np.array([1, "x"], dtype=object),
    "masked array": np.ma.array([1, 2], mask=[False, True]),
    "random generator": np.random.default_rng(1),
    "frame": pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}),
    "sparse matrix": scipy.sparse.eye(3).tocsr(),
    "dict with a factory": collections.defaultdict(list, a=[1]),
    "exception": ValueError("x"),
}
#: Values need none of this.
NEEDLESS = ("functions",)


def advised(fix):
    names = re.search(r"profile: \[\.\.\., ([^]]+)\]", fix)[1]
    return tuple(names.split(", "))


@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("given", ["data", "pandas", "exceptions"])
@pytest.mark.parametrize("kind", OBJECTS)
def test_one_step_and_nothing_needless(kind, given, protocol):
    data = pickle.dumps(OBJECTS[kind], protocol)
    if inspect(data, profile=given).permitted:
        return
    with pytest.raises(PolicyDenied) as caught:
        loads(data, profile=given)
    added = advised(caught.value.fix)
    assert caught.value.fix.count("Add the profile") == 1
    assert not set(added) & {*NEEDLESS, given}
    loads(data, profile=(given, *added))
    for name in added:
        fewer = (given, *(other for other in added if other != name))
        assert not inspect(data, profile=fewer).permitted


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("os:system", "standard library"),
        ("numpy:load", "reads, writes or runs"),
        ("torch:load", "code of their own"),
        ("psutil:Popen", "starts processes"),
    ],
)
def test_no_advice_allows_what_cannot_be_allowed(asm, name, why):
    bodies = [asm.name(name), asm.tuple(asm.name(name), asm.name("mylib:train"))]
    if name != "numpy:load":  # a class of NumPy's could be allowed
        bodies.append(asm.call(name))
    for body in bodies:
        with pytest.raises(PolicyDenied) as caught:
            loads(asm.pickle(body))
        assert f'"{name}":' not in caught.value.fix
        assert why in caught.value.fix
        assert "Only family cloudpickle" in caught.value.fix
    with pytest.raises(PolicyDenied) as caught:
        loads(asm.pickle(asm.name("mylib:train")))
    assert '"mylib:train": reference' in caught.value.fix


def test_a_member_of_an_enum_may_be_one(asm):
    member = asm.call("mylib:Color", b"K\1")
    for data in (member, asm.tuple(member, asm.new("mylib:Point"))):
        with pytest.raises(PolicyDenied) as caught:
            loads(asm.pickle(data))
        assert "the role is enum" in caught.value.fix
    with pytest.raises(PolicyDenied) as caught:
        loads(asm.pickle(asm.new("mylib:Point")))
    assert "enum" not in caught.value.fix


@pytest.mark.parametrize(("role", "other"), [("class", "reference"), ("reference", "class")])
def test_a_class_that_is_both_made_and_handed_over(asm, role, other):
    name = "test_advice:Made"
    profile = Profile.named("data").allowing({name: role})
    data = asm.pickle(asm.tuple(asm.new(name), asm.name(name)))
    with pytest.raises(PolicyDenied) as caught:
        loads(data, profile=profile)
    assert f'allow: {{"{name}": [{role}, {other}]}}' in caught.value.fix
    assert inspect(data, profile=profile.allowing({name: other})).permitted
    assert inspect(data, profile=Profile.named("data").allowing({name: [role, other]})).permitted


def test_a_name_that_stands_in_several_places_needs_what_each_of_them_needs(asm):
    # Once where a dictionary's factory may stand, once as a value.
    made = asm.call("collections:defaultdict", asm.name("builtins:list") + b"\x94")
    data = asm.pickle(asm.tuple(made, b"h\0"))
    with pytest.raises(PolicyDenied) as caught:
        loads(data, profile="data")
    (added,) = advised(caught.value.fix)
    assert added == "functions"
    assert inspect(data, profile=("data", added)).permitted


def test_showing_odd_letters_imports_nothing():
    # str.encode("unicode_escape") imports a module of encodings when it is first used.
    program = (
        "import sys; from safeser.pickles.names import shown; before = set(sys.modules);"
        "assert shown('a\\0\\u0430') == 'a\\\\x00\\\\u0430';"
        "assert set(sys.modules) == before, set(sys.modules) - before"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
