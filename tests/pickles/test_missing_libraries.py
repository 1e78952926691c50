"""Refusals where a library or the right argument is missing: they name it, and how to get it."""

from __future__ import annotations

import sys

import pytest

from safeser.errors import ConfigError
from safeser.pickles import Profile, check, global_of, inspect, loads
from safeser.pickles.shims import shim
from tests.pickles.forging import family_of, refused


@pytest.mark.parametrize(("function", "library", "fix"), [
    ("arrow.nothing", "pyarrow", "extra [arrow]"), ("pandas.nothing", "pandas", "extra [arrow]"),
    ("scipy.nothing", "scipy", "Install scipy here"),
    ("sklearn.nothing", "sklearn", "Install scikit-learn here"),
])  # fmt: skip
def test_what_to_install_is_said(monkeypatch, function, library, fix):
    room = function.partition(".")[0]
    for name in list(sys.modules):
        if name.partition(".")[0] == library or name.startswith(f"safeser.pickles.shims.{room}"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    error = refused("pickle.unresolved", shim, function)
    assert library in str(error)
    assert fix in error.fix


def test_what_granted_code_needs_is_said():
    with pytest.raises(ConfigError) as caught:
        Profile.named("code")
    assert "cloudpickle" in caught.value.fix
    assert "load_code" not in caught.value.fix


@pytest.mark.parametrize(
    "given", [{"a:B"}, ["a:B"], "a:B", b"a", 5, None, {"a:B": "class"}.items()]
)
def test_what_allows_nothing_is_said(given):
    with pytest.raises(ConfigError, match="globals_ maps each module:qualname to a role"):
        Profile.named("data").allowing(given)


@pytest.mark.parametrize("function", [loads, check, inspect, family_of, global_of])
def test_text_is_no_pickle(function):
    with pytest.raises(TypeError, match="data is bytes or another buffer, not a str"):
        function("N.")


@pytest.mark.parametrize("function", [loads, check])
def test_limits_are_no_mapping(function):
    with pytest.raises(ConfigError, match=r"limits is a safeser\.Limits, not a dict"):
        function(b"N.", limits={"max_depth": 3})
