"""Scientific packages are imported when an object of theirs is sent or loaded, and not before."""

import collections
import subprocess
import sys
import types

import pytest

from safeser import families
from safeser.errors import PayloadError
from tests.samples.typed import GRANT, through

PROGRAM = """
import sys
from safeser import families
from safeser.errors import SafeserError
from safeser.families import registry
from safeser.gate.values import Grant

PACKAGES = ("scipy", "sklearn", "xarray", "torch", "pandas", "pyarrow", "polars", "dask")
PACKAGES += ("numpy.random",)
NAMES = [name for name in registry._lazy_names if name.startswith(PACKAGES)]
assert len(NAMES) > 30, NAMES
for name in (*NAMES, "pandas:NA"):
    header = {"serializer": "dask", "type": name, "sub-header": {}}
    for grant in (Grant("test", ("msgpack",)), Grant("test", ())):
        families.derive(header, [])
        families.check(header, [])
        try:
            families.deserialize(header, [], grant)
        except SafeserError as error:
            assert error.rule == "context.family", error
        else:
            raise AssertionError(name)
for name in ("pandas:eval", "pandas:read_pickle", "os:system"):
    for act in (families.derive, families.check):
        try:
            act({**header, "type": name}, [])
        except SafeserError as error:
            assert error.rule == "families.type"
loaded = [name for name in PACKAGES if name in sys.modules]
assert not loaded, loaded
families.deserialize({**header, "type": "pandas:NA"}, [], Grant("test", ("dask",)))
assert "pandas" in sys.modules
wrong = {**header, "type": "pandas:NA", "sub-header": {"a": 1}}
try:
    families.check(wrong, [])
except SafeserError as error:
    assert error.rule == "families.header"
else:
    raise AssertionError("a wrong header passed")
"""


def test_nothing_is_imported_for_who_may_not_send_it():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_advice_is_for_a_class_and_those_derived_from_it():
    class Ours:
        pass

    class Theirs(Ours):
        pass

    families.registry.advise(Ours, "ours are to be cut into pieces first")
    with pytest.raises(PayloadError, match="cut into pieces") as caught:
        families.serialize([Theirs()], ("dask", "msgpack"))
    assert caught.value.where == "[0]"
    assert families.registry.for_object(Theirs()) is None


def _state():
    made = collections.OrderedDict(weight=b"\x00")
    made._metadata = collections.OrderedDict([("", {"version": 1})])
    return made


def test_versions_of_a_state_dict():
    got = through(_state())
    assert got == _state()
    assert got._metadata == _state()._metadata
    other = collections.OrderedDict()
    other.note = 1
    with pytest.raises(PayloadError, match="attributes of its own"):
        families.serialize(other, ("dask", "msgpack"))


def test_forged_versions_of_a_state_dict():
    header, frames = families.serialize(_state(), ("dask", "msgpack"))
    for children in (header["sub-headers"][:1] * 2, header["sub-headers"][:1] * 3, []):
        lengths = [1] * len(children)
        forged = {**header, "sub-headers": children, "frame-lengths": lengths}
        with pytest.raises(PayloadError):
            families.deserialize(forged, [frames[0]] * len(children), GRANT)


def test_tensors_are_listed_by_a_module_of_their_own(monkeypatch):
    # Which imports PyTorch, so that only whoever has it meets the module itself.
    listed = []
    module = types.ModuleType("safeser.families.science.tensors")
    module.register = lambda: listed.append("torch")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    families.registry._lazy_names["torch:Tensor"].load()
    assert listed == ["torch"]
