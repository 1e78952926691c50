"""What reaches code is refused by every entrance through which a name can be allowed."""

from __future__ import annotations

import argparse
import ctypes
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from safeser.allowed import Allowed
from safeser.errors import ConfigError, SafeserError
from safeser.families.registered.classes import register_class
from safeser.families.registered.generic import register_generic
from safeser.gate.values import Context, Grant
from safeser.pickles import Entry, Profile, loads
from safeser.policy import Policy
from tests.pickles.forging import refused
from tests.samples import opcodes as op

POLICY = """\
safeser: 1
name: test
revision: 3
principals: {a: {}, b: {}}
contexts:
- name: x
  sender: a
  recipient: b
  serializers: [dask, msgpack, pickle]
  deserializers: [dask, msgpack, pickle]
  operations: {grant: [basic]}
  pickle: {allow: {"mylib:train": reference, "%s": %s}}
"""

#: Each ran a command, loaded code or opened a file once it was allowed.
REACHING = [
    ("subprocess:Popen", "class"), ("ctypes:CDLL", "class"), ("types:FunctionType", "class"),
    ("builtins:KeyboardInterrupt", "class"),  # it ends the process that loads it
    ("types:FunctionType", "constant"), ("_io:FileIO", "class"), ("builtins:eval", "reference"),
    ("os:system", "reference"), ("os:system", "callable"), ("os.path:join", "callable"),
    ("importlib:import_module", "[class, reference]"),
    ("operator:methodcaller", "{role: class, fields: [name]}"), ("uuid:SafeUUID", "enum"),
    ("test.support:run_code", "reference"), ("torch:load", "reference"),
    ("torch.storage:_load_from_bytes", "callable"), ("dill:loads", "reference"),
    ("dill._dill:loads", "callable"), ("cloudpickle:loads", "reference"),
    ("yaml:load", "reference"), ("psutil:Popen", "reference"), ("psutil:Popen", "class"),
    ("scipy.io:loadmat", "reference"), ("scipy.io.matlab._mio:loadmat", "callable"),
    ("pandas:read_pickle", "reference"), ("pandas:HDFStore", "class"), ("numpy:save", "reference"),
    ("numpy:memmap", "class"), ("numpy.f2py:compile", "reference"),
    ("joblib.numpy_pickle:load", "reference"), ("fsspec.core:OpenFile", "class"),
    ("toolz.functoolz:pipe", "reference"), ("dask.dataframe.io.csv:read_csv", "reference"),
    ("distributed.worker:get_worker", "reference"), ("safeser.pickles.stock:loads", "reference"),
    ("_cffi_backend:load_library", "callable"), ("pygments.cmdline:main", "reference"),
    ("pydantic._internal._validators:import_string", "callable"),
    ("sklearn.utils._testing:assert_run_python_script_without_output", "reference"),
    ("hypothesis.internal.reflection:source_exec_as_module", "reference"),
    ("coverage.cmdline:main", "callable"), ("mypy.api:run", "reference"),
    ("lz4.frame:LZ4FrameFile", "class"), ("dateutil.tz.tz:tzical", "class"),
    ("dateutil.tz._tzfile:tzfile", "class"), ("numpy.lib._stride_tricks_impl:DummyArray", "class"),
    ("numpy._core._internal:_ctypes", "class"), ("scipy._lib._ccallback:LowLevelCallable", "class"),
    ("scipy._lib._bunch:_make_tuple_bunch", "reference"),
    ("scipy.optimize._nonlin:_nonlin_wrapper", "reference"),
    ("scipy.stats._continuous_distns:norm_gen", "class"),
    ("scipy.sparse._matrix_io:load_npz", "reference"),
    ("sklearn.utils.discovery:all_estimators", "callable"),
    ("xarray.util.print_versions:get_sys_info", "reference"),
    ("xarray.core.utils:attempt_import", "reference"),
    ("xarray.core.dataset:Dataset.query", "reference"),
    ("attr._make:_linecache_and_compile", "reference"),
    ("networkx.utils.backends:_load_backend", "reference"),
    ("narwhals._utils:_import_native_namespace", "reference"),
    ("packaging._musllinux:_get_musl_version", "reference"),
    ("typing_extensions:get_type_hints", "reference"),
    ("threadpoolctl:_CDLLCache.get_cdll", "reference"),
    ("unknown_library.cli.parse:convert_file", "reference"),
    ("unknown_library.pkg.tests.test_it:run", "callable"),
    ("unknown_library.__main__:main", "reference"),
]  # fmt: skip


def parsed(name: str, role: str) -> Policy:
    spelled = role.replace("callable", '{role: callable, returns: "my:C"}')
    return Policy.parse(POLICY % (name, spelled), source="p.yaml")


def spec(role: str) -> object:
    if role == "callable":
        return {"role": "callable", "returns": "my:C"}
    if role.startswith("{"):
        return {"role": "class", "fields": ["name"]}
    return role.strip("[]").split(", ") if role.startswith("[") else role


def first(role: str) -> str:
    return "class" if role[0] in "[{" else role


ENTRANCES: dict[str, Callable[[str, str], object]] = {
    "policy": parsed,
    "profile": lambda name, role: Profile.named("data").allowing({name: spec(role)}),
    "loads": lambda name, role: loads(
        b"N.", profile=Profile.named("data", "numpy").allowing({name: spec(role)})
    ),
    "grant": lambda name, role: Grant("x", ("pickle",), allow=Allowed.each(name, spec(role))),
    "entry": lambda name, role: Entry(name, first(role)),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(("name", "role"), REACHING)
def test_what_reaches_code_is_refused(entrance: str, name: str, role: str) -> None:
    error = refused("config.allow-name", ENTRANCES[entrance], name, role)
    assert f"{name} cannot be allowed" in error.message
    assert "a module of your own" in error.fix
    if entrance == "policy":
        assert "p.yaml, line 12" in error.where


@pytest.mark.parametrize(("name", "role"), [
    ("__main__:train", "reference"), ("__main__:Point", "class"),
    ("pandas.tseries.holiday:Holiday", "class"), ("numpy:poly1d", "class"),
    ("torch.nn.modules.linear:Linear", "class"), ("xgboost.sklearn:XGBModel", "class"),
    ("sklearn.linear_model._base:LinearRegression", "class"), ("mylib.tests.models:Point", "class"),
])  # fmt: skip
def test_what_may_be_allowed(name: str, role: str) -> None:
    allowed = parsed(name, role).grant(Context("a", "b")).allow
    assert allowed[-1] == Allowed(name, role)


STATE = {"role": "class", "trust": ["__setstate__"]}


@pytest.mark.parametrize(
    "name", ["scipy.spatial.transform:Rotation", "xarray.core.dataset:Dataset"]
)
def test_no_setstate_of_a_library_whose_functions_are_refused_is_trusted(name: str) -> None:
    assert Allowed.of(name, "class").setstate is False
    for allow in (
        lambda: Allowed.of(name, STATE),
        lambda: Profile.named("data").allowing({name: STATE}),
        lambda: Entry(name, "class", setstate=True),
        lambda: parsed(name, "{role: class, trust: [__setstate__]}"),
    ):
        with pytest.raises(ConfigError, match="as class that trusts __setstate__") as caught:
            allow()
        assert caught.value.rule == "config.allow-name"
    assert Allowed.of("mylib:Point", STATE).setstate is True


# --- what a name leads to ------------------------------------------------------------------------


@pytest.fixture
def ran(tmp_path: Path) -> Path:
    return tmp_path / "ran"


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A library that an operator would allow something of; it imports what libraries import."""
    source = """
import os
import subprocess
from os import system
from subprocess import Popen

class Engine:
    shell = staticmethod(system)
    sub = subprocess
    def run(self, *args):
        raise AssertionError("it ran")

run = Engine().run
called = []
class Point:
    def __init__(self):
        called.append("Point")
"""
    module = types.ModuleType("mylib_reexports")
    exec(source, vars(module))
    monkeypatch.setitem(sys.modules, "mylib_reexports", module)
    return module


REEXPORTS = ["Popen", "system", "os.system", "subprocess.Popen", "Engine.shell", "Engine.sub.Popen"]


@pytest.mark.parametrize("name", REEXPORTS)
@pytest.mark.parametrize("granted", [False, True])
def test_a_name_that_leads_to_another_object_is_refused_before_anything_is_called(
    library: types.ModuleType, ran: Path, name: str, granted: bool
) -> None:
    exact = f"mylib_reexports:{name}"
    allow = {exact: {"role": "class"}, "mylib_reexports:Point": "class"}
    if granted:
        policy = Policy.parse(
            POLICY.replace('"mylib:train": reference', '"mylib_reexports:Point": class')
            % (exact, "class"),
            source="p.yaml",
        )
        grant = policy.grant(Context("a", "b"))
        profile = Profile.granted(grant.profiles, grant.allow)
    else:
        profile = Profile.named("data").allowing(allow)
    command = op.call(exact, ["touch", str(ran)])
    data = op.pickled((op.call("mylib_reexports:Point"), command))
    error = refused("pickle.allowed-name", loads, data, profile=profile)
    assert exact in error.message
    assert library.called == []
    assert not ran.exists()


@pytest.mark.parametrize("name", [*REEXPORTS, "run"])
@pytest.mark.parametrize("role", ["reference", "callable", "enum", "constant"])
def test_no_role_hands_out_another_object(library: types.ModuleType, name: str, role: str) -> None:
    exact = f"mylib_reexports:{name}"
    profile = Profile.named("data").allowing({exact: spec(role)})
    body = op.name(exact) if role in ("reference", "constant") else op.call(exact, 1)
    refused("pickle.allowed-name", loads, op.pickled(body), profile=profile)


@pytest.mark.parametrize("register", [register_class, register_generic])
@pytest.mark.parametrize("name", [None, "mylib:Harmless"])
@pytest.mark.parametrize("cls", [argparse.Namespace, ctypes.CDLL])
def test_no_class_of_the_standard_library_is_registered(register, name, cls) -> None:
    with pytest.raises(SafeserError, match="standard library") as caught:
        register(cls, name=name)
    assert caught.value.rule == "families.register"
