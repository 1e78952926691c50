"""Refusals where a library is not installed: they name that library, and how to get it."""

from __future__ import annotations

import sys

import pytest

from safeser.errors import ConfigError, PayloadError
from safeser.pickles import Profile
from safeser.pickles.shims import shim


@pytest.mark.parametrize(
    ("function", "library", "fix"),
    [
        ("arrow.nothing", "pyarrow", "extra [arrow]"),
        ("pandas.nothing", "pandas", "extra [arrow]"),
        ("dask.nothing", "dask", "extra [dask]"),
        ("scipy.nothing", "scipy", "Install scipy here"),
        ("sklearn.nothing", "sklearn", "Install scikit-learn here"),
    ],
)
def test_what_to_install_is_said(monkeypatch, function, library, fix):
    room = function.partition(".")[0]
    for name in list(sys.modules):
        if name.partition(".")[0] == library or name.startswith(f"safeser.pickles.shims.{room}"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(PayloadError) as caught:
        shim(function)
    assert caught.value.rule == "pickle.unresolved"
    assert library in str(caught.value)
    assert fix in caught.value.fix


def test_what_granted_code_needs_is_said():
    with pytest.raises(ConfigError) as caught:
        Profile.named("code")
    assert "cloudpickle" in caught.value.fix
    assert "load_code" not in caught.value.fix
