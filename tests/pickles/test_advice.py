"""What a refusal advises is enough, in one step, and holds nothing that is needless."""

from __future__ import annotations

import collections
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from safeser.errors import PolicyDenied
from safeser.pickles import Profile, inspect, loads
from tests.pickles.forging import refused
from tests.samples import opcodes as op

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


@pytest.mark.parametrize(("name", "why"), [
    ("os:system", "standard library"), ("numpy:load", "reads, writes or runs"),
    ("torch:load", "code of their own"), ("psutil:Popen", "starts processes"),
])  # fmt: skip
def test_no_advice_allows_what_cannot_be_allowed(name, why):
    bodies = [op.name(name), op.value((op.name(name), op.name("mylib:train")))]
    if name != "numpy:load":  # a class of NumPy's could be allowed
        bodies.append(op.call(name))
    for body in bodies:
        with pytest.raises(PolicyDenied) as caught:
            loads(op.pickled(body))
        assert f'"{name}":' not in caught.value.fix
        assert why in caught.value.fix
        assert "Only family cloudpickle" in caught.value.fix
    with pytest.raises(PolicyDenied) as caught:
        loads(op.pickled(op.name("mylib:train")))
    assert '"mylib:train": reference' in caught.value.fix


@pytest.mark.parametrize(("role", "other"), [("class", "reference"), ("reference", "class")])
def test_a_class_that_is_both_made_and_handed_over(role, other):
    name = "test_advice:Made"
    profile = Profile.named("data").allowing({name: role})
    data = op.pickled((op.new(name), op.name(name)))
    with pytest.raises(PolicyDenied) as caught:
        loads(data, profile=profile)
    assert f'allow: {{"{name}": [{role}, {other}]}}' in caught.value.fix
    assert inspect(data, profile=profile.allowing({name: other})).permitted
    assert inspect(data, profile=Profile.named("data").allowing({name: [role, other]})).permitted


def test_a_name_that_stands_in_several_places_needs_what_each_of_them_needs():
    # Once where a dictionary's factory may stand, once as a value.
    made = op.call("collections:defaultdict", op.name("builtins:list") + b"\x94")
    data = op.pickled((made, b"h\0"))
    with pytest.raises(PolicyDenied) as caught:
        loads(data, profile="data")
    (added,) = advised(caught.value.fix)
    assert added == "functions"
    assert inspect(data, profile=("data", added)).permitted


NUMPY = pickle.dumps(np.float64(1), 2)[2:-1]
POINT, OTHER = op.new("my:Point"), op.new("my:A")
MANY = [op.new(f"{'m' * 110}:A{n}") for n in range(500)]
#: What stands in the fix, and what does not, of each body.
SAID = [
    (POINT, ['"my:Point": class'], ["beyond ASCII", "enum"]),
    (op.call("mylib:Color", 1), ["the role is enum"], []),
    (b"cos\nsystem\n)R", [], ["allow:"]), (b"cuuid\nUUID\n)R", [], ["allow:"]),
    (op.value([OTHER, op.name("my:f"), OTHER]), ['{"my:A": class, "my:f": reference}'], []),
    (op.value([op.name("my:A"), OTHER, op.new("my:B")]), ['"my:A": class, "my:B": class'], []),
    (op.value([NUMPY, OTHER]), ["profile numpy", '"my:A": class'], []),
    (op.value([OTHER, op.new("os:A")]), ["cloudpickle"], ["my:A"]),
    (op.new("m\u0430in:P"), ['"m\\u0430in:P": class', "letters beyond ASCII"], []),
    (op.value(MANY), ["200 globals that"], ["allow:"]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "said", "unsaid"), SAID)
def test_what_would_allow_it_is_said(body, said, unsaid):
    error = refused("pickle.global", loads, op.pickled(body))
    assert all(part in error.fix for part in said)
    assert not any(part in error.fix for part in unsaid)
    assert len(str(error)) < 2000


@pytest.mark.parametrize(("body", "said"), [
    (op.new_with("my:Point", (), {"x": None}), "kwargs: [x]"), (POINT + b"Na", "grows: list"),
    (POINT + b"NNs", "grows: dict"),
])  # fmt: skip
def test_what_is_said_more_of_a_class(body, said):
    profile = Profile.named("data").allowing({"my:Point": "class"})
    assert said in refused("pickle.global", loads, op.pickled(body), profile=profile).fix
    assert inspect(op.pickled(POINT), profile=profile).permitted


@pytest.mark.parametrize("held", [int, np.sin, [len, np.float64]])
def test_functions_alone_need_no_estimators(held):
    with pytest.raises(PolicyDenied) as caught:
        loads(pickle.dumps(held), profile=("data", "numpy"))
    assert advised(caught.value.fix) == ("functions",)
