"""The list of names that reach code: what a row covers, and that each row says something."""

from __future__ import annotations

import builtins
import importlib
import sys
import tomllib
import warnings
from importlib import resources
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.allowed import ALLOWED_ROLES, refusal

DOCUMENT = tomllib.loads(
    resources.files("safeser.allowed").joinpath("refused.toml").read_text("utf-8")
)
ROWS = {name: row for row in DOCUMENT["refused"] for name in row["names"]}


def test_no_row_stands_below_one_that_refuses_everything() -> None:
    everything = {name for name, row in ROWS.items() if row["roles"] == "every"}
    for name in ROWS:
        module, _, qualname = name.partition(":")
        parts = module.split(".")
        above = {".".join(parts[:end]) for end in range(1, len(parts) + bool(qualname))}
        assert not above & everything, name


def test_each_name_stands_once_and_its_row_is_whole() -> None:
    assert list(DOCUMENT) == ["refused"]
    assert len(ROWS) == sum(len(row["names"]) for row in DOCUMENT["refused"])
    for row in DOCUMENT["refused"]:
        assert row.keys() == {"roles", "why", "names"}
        assert row["roles"] in ("every", "functions")
        assert row["why"]


REFUSED = {"every": set(ALLOWED_ROLES), "functions": {"callable", "reference"}}


def test_a_row_refuses_what_it_names_and_all_below_it() -> None:
    for name, row in ROWS.items():
        if name in sys.stdlib_module_names:  # of some versions of Python
            continue
        for one in [name] if ":" in name else [f"{name}:f", f"{name}.inner.most:C.m"]:
            assert refusal(one, "reference") == row["why"], one
            refused = {role for role in ALLOWED_ROLES if refusal(one, role)}
            assert refused == REFUSED[row["roles"]], one


def test_a_module_is_matched_whole() -> None:
    for name in ROWS:
        beside = f"{name}x:f"
        if ":" not in name:
            assert beside.partition(":")[0] in ROWS or not refusal(beside, "class"), beside


@pytest.mark.parametrize("part", ["tests", "_testing", "cli", "cmdline", "conftest", "__main__"])
def test_functions_of_tests_and_command_lines(part: str) -> None:
    for name in (f"mylib.{part}:f", f"mylib.{part}.inner:f", f"mylib.inner.{part}:C.m"):
        refused = {role for role in ALLOWED_ROLES if refusal(name, role)}
        assert refused == {"callable", "reference"}
        assert refusal(name, "class", setstate=True)
    assert not refusal(f"mylib.{part}x:f", "reference")
    assert not refusal(f"{part}.models:f", "reference")


@given(st.sampled_from(sorted(sys.stdlib_module_names)), st.sampled_from(ALLOWED_ROLES))
def test_nothing_of_the_standard_library(module: str, role: str) -> None:
    assert refusal(f"{module}:anything", role)
    assert refusal(f"{module}.inner:Class.method", role)


def test_all_builtins() -> None:
    assert all(refusal(f"builtins:{name}", "class") for name in vars(builtins))


@pytest.mark.parametrize("name", ["mylib:train", "mylib.os:system", "myos:system", "__main__:C"])
def test_what_is_not_listed_is_not_refused_for_its_name(name: str) -> None:
    assert not any(refusal(name, role) for role in ALLOWED_ROLES)


#: Of another version of its library than the one that is installed with the tests.
ELSEWHERE = {"numpy.distutils", "scipy.misc", "sklearn.externals", "numpy:DataSource"}


def installed(name: str) -> bool:
    module, _, qualname = name.partition(":")
    below = bool(qualname) or "." in module
    top = find_spec(module.partition(".")[0]) if below else None
    if top is None:
        return False
    # A namespace that distributions share, as google, does not tell which of them is there.
    return top.origin is not None or find_spec(".".join(module.split(".")[:2])) is not None


@pytest.mark.parametrize("name", list(filter(installed, sorted(ROWS.keys() - ELSEWHERE))))
def test_a_row_of_an_installed_library_names_something(name: str) -> None:
    module, _, qualname = name.partition(":")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = importlib.import_module(module)
    assert not qualname or hasattr(found, qualname)
