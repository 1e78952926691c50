"""Classes that libraries registered with distributed's own decorators."""

import numpy as np
import pytest
from distributed.protocol.serialize import dask_deserialize, dask_serialize, register_generic

from safeser.dask.clients.decorated import Decorated, honour_decorators
from safeser.families.registered import dispatch


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


def test_they_are_honoured_once_for_all(monkeypatch):
    monkeypatch.setattr(dispatch.functions, "_foreign", None)
    honour_decorators()
    honour_decorators()
    assert isinstance(dispatch.functions._foreign, Decorated)
