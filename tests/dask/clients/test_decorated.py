"""Classes that libraries registered with distributed's own decorators."""

from types import MethodType

import numpy as np
import pytest
import scipy.sparse
from dask.utils import Dispatch
from distributed.protocol.serialize import dask_deserialize, dask_serialize, register_generic

from safeser.dask.clients import decorated
from safeser.dask.clients.decorated import Decorated, honour_decorators
from safeser.families.registered import dispatch
from tests.dask.patched import original, row

REGISTERS = "dask.utils:Dispatch.register"
REGISTER = row(REGISTERS).replacement(original(REGISTERS))


class Tiles:
    pass


class Wide(Tiles):
    pass


class Walked:
    pass


def take(x):
    return {}, []


def put(header, frames):
    return Tiles()


@pytest.fixture
def registered():
    dask_serialize.register(Tiles)(take)
    dask_deserialize.register(Tiles)(put)
    register_generic(Walked)
    yield Decorated()
    for known in (dask_serialize._lookup, dask_deserialize._lookup):
        for cls in (Tiles, Wide, Walked):
            known.pop(cls, None)


def test_exactly_the_registered_class(registered):
    assert registered.dumps(Tiles) is take
    assert registered.loads(dispatch.name_of(Tiles)) is put
    # distributed's dispatch remembers what a class inherits; the base's functions would alter it.
    assert dask_serialize.dispatch(Wide) is take
    assert dask_deserialize.dispatch(Wide) is put
    assert registered.dumps(Wide) is None
    assert registered.loads(dispatch.name_of(Wide)) is None
    assert registered.loads("tests.dask:Absent") is None
    assert registered.dumps(int) is None


def test_distributed_s_own_functions_are_left_out(registered):
    # They pickle inside: dtypes, classes, whatever an attribute holds.
    assert registered.dumps(np.ndarray) is None
    assert registered.loads("numpy:ndarray") is None
    assert registered.loads("builtins:dict") is None
    assert registered.dumps(Walked) is None
    assert registered.loads(dispatch.name_of(Walked)) is None


@pytest.fixture
def said(monkeypatch, caplog):
    monkeypatch.setattr(decorated, "_reported", set())
    monkeypatch.setattr(dask_serialize, "register", MethodType(REGISTER, dask_serialize))
    return lambda: [each.getMessage() for each in caplog.records if each.name == "safeser.dask"]


def test_what_happens_to_a_registration_is_said_once_for_a_package(said):
    for cls in (Tiles, Wide):
        dask_serialize.register(cls)(take)
    register_generic(Walked)
    for known in (dask_serialize._lookup, dask_deserialize._lookup):
        for cls in (Tiles, Wide, Walked):
            known.pop(cls, None)
    honoured, ignored = said()
    assert f'dask: {{types: ["{dispatch.name_of(Tiles)}"]}}' in honoured
    assert "Call safeser.register_generic(Walked) in its place." in ignored


def test_another_dispatch_and_what_distributed_has_of_its_own_are_left_alone(said):
    honour_decorators()
    register_generic(scipy.sparse.spmatrix)  # as distributed itself does
    dask_serialize.register(Walked, dask_serialize.dispatch(np.ndarray))
    dask_serialize._lookup.pop(Walked)
    assert REGISTER(Dispatch(), Tiles, take) is take
    assert said() == []
