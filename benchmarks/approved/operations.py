"""Which of Dask's array and dataframe operations an analyst may submit: judged one by one.

The one rule: an operation counts as working only if the scheduler's own reader takes the very bytes
that would be sent, and what it made of them computes to what Dask computes without any of this.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import cloudpickle
import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask._expr import FinalizeCompute, LLGExpr
from dask._task_spec import convert_legacy_graph
from dask.base import collections_to_expr, flatten, is_dask_collection

from benchmarks.approved import lib
from safeser import pickles
from safeser.dask import approved
from safeser.dask.definitions import Comparison
from safeser.errors import SafeserError
from safeser.policy.rules import APPROVED
from safeser.values import Allowed, Grant, Limits

__all__ = ["GRANT", "Verdict", "conflicts", "judge", "names", "operations"]

_ROWS = 100

#: What the operator of these tables allows beside the profile.
ALLOWED = tuple(
    f"{lib.__name__}:{name}"
    for name, function in vars(lib).items()
    if inspect.isfunction(function) and name != "unlisted"
)
GRANT = Grant(
    "analysts",
    ("dask", "msgpack", "pickle"),
    APPROVED,
    tuple(Allowed(name, "reference") for name in ALLOWED),
    "approved",
)
_PROFILE = pickles.Profile.granted(GRANT.profiles, GRANT.allow)


@dataclass(frozen=True)
class Verdict:
    """What became of one operation.

    :param outcome: ``works``, ``refused`` (by us), ``differs``, or ``none`` (stock Dask fails).
    """

    section: str
    text: str
    outcome: str
    why: str = ""


def operations(kind: str) -> list[tuple[str, str]]:
    """Return (section, expression) of each operation in ``arrays`` or ``frames``."""
    text = resources.files("benchmarks.approved").joinpath(f"{kind}.txt").read_text("utf-8")
    found, section = [], ""
    for line in text.splitlines():
        if line.startswith("# "):
            section = line[2:]
        elif line:
            found.append((section, line))
    return found


def names(folder: Path) -> dict[str, Any]:
    """Return what the expressions of the tables are about."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "a": rng.integers(0, 10, _ROWS),
            "b": rng.random(_ROWS),
            "i": np.arange(_ROWS),
            "k": rng.choice(list("abc"), _ROWS),
            "c": rng.choice(["aa_b", "ab_c"], _ROWS),
            "t": pd.date_range("2000-01-01", periods=_ROWS, freq="h"),
            "cat": pd.Categorical(rng.choice(list("xyz"), _ROWS)),
        }
    )
    files = {name: str(folder / f"frame.{name}") for name in ("csv", "parquet", "json")}
    frame.to_csv(files["csv"])
    frame.to_parquet(files["parquet"])
    frame.to_json(files["json"], orient="records", lines=True, date_format="iso")
    files["orc"] = str(folder / "frame.orc")
    frame[["a", "b"]].to_orc(files["orc"])
    stack = str(folder / "stack")
    da.to_npy_stack(stack, da.ones(4, chunks=2))
    other = pd.DataFrame({"k": list("abcab"), "v": range(5)})
    square = (_ROWS, _ROWS)
    return {
        **{"np": np, "pd": pd, "dask": dask, "da": da, "dd": dd, "lib": lib, "frame": frame},
        **files,
        "x": da.from_array(rng.random(square), chunks=50),
        "y": da.from_array(rng.random(square), chunks=50),
        "v": da.from_array(rng.random(_ROWS), chunks=50),
        "k": da.from_array(rng.integers(0, 10, square), chunks=50),
        "t": da.from_array(rng.random((_ROWS, 5)), chunks=(25, 5)),
        "spd": da.from_array(np.eye(_ROWS) * 5 + 1, chunks=50),
        "out": np.zeros(square),
        "df": dd.from_pandas(frame, npartitions=4),
        "other": dd.from_pandas(other, npartitions=2),
        "small": pd.DataFrame({"k": list("ab"), "w": [1, 2]}),
        "folder": str(folder),
        "stack": stack,
    }


@contextlib.contextmanager
def _quiet(scheduler: Any = "synchronous") -> Iterator[None]:
    # Some operations compute while they are spelled: lengths, divisions, categories.
    with (
        warnings.catch_warnings(),
        dask.config.set(scheduler=scheduler),
        approved.methods(),
    ):
        warnings.simplefilter("ignore")
        yield


def judge(section: str, text: str, given: dict[str, Any]) -> Verdict:
    """Return what becomes of one operation if an analyst submits it."""
    try:
        with _quiet(_through):
            # The expressions are those of this package's own lists.
            made = eval(text, dict(given))
            parts = _parts(made)
            exprs = list(map(_expression, parts))
            tasks = list(map(_carried, exprs))
    except SafeserError as error:
        return Verdict(section, text, "refused", error.message)
    except Exception as error:  # Dask may say it in other words
        return _unlike_stock(section, text, given, error)
    with _quiet():
        try:
            wanted = [part.compute(scheduler="synchronous") for part in parts]
            plain = made if parts else eval(text, dict(given))
        except Exception as error:
            return Verdict(section, text, "none", _said(error))
        try:
            got = [
                dask.get(graph, next(iter(flatten(expr.__dask_keys__()))))
                for graph, expr in zip(tasks, exprs, strict=True)
            ]
        except Exception as error:  # what the analyst would see on the future
            return Verdict(section, text, "refused", _said(error))
    same = all(map(_same, got, wanted)) and (bool(parts) or _same(made, plain))
    return Verdict(section, text, "works" if same else "differs")


def _unlike_stock(section: str, text: str, given: dict[str, Any], error: Exception) -> Verdict:
    """Return what an *error* is that is none of ours: a refusal, if stock Dask has none."""
    with _quiet():
        try:
            dask.compute(eval(text, dict(given)))
        except Exception as stock:
            return Verdict(section, text, "none", _said(stock))
    return Verdict(section, text, "refused", _said(error))


def _parts(made: Any) -> list[Any]:
    """Return the collections in what an expression gives: itself, or those in lists and tuples."""
    if is_dask_collection(made):
        return [made]
    return [part for one in made for part in _parts(one)] if isinstance(made, list | tuple) else []


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def conflicts(text: str, given: dict[str, Any]) -> list[Any]:
    """Return the keys that are refused to one of two who compute *text* at the same time: an
    analyst, and somebody who may submit code. There are none if they are taken for the same.
    """
    with _quiet(_through):
        approved_tasks = _merged(_opened, _parts(eval(text, dict(given))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coded = _merged(_unpickled, _parts(eval(text, dict(given))))
    shared = approved_tasks.keys() & coded.keys()
    assert shared
    first = Comparison(approved_tasks.get, coded.get)
    second = Comparison(coded.get, approved_tasks.get)
    return [
        key
        for key in shared
        if not first.same(approved_tasks[key], coded[key])
        or not second.same(coded[key], approved_tasks[key])
    ]


def _expression(collection: Any) -> Any:
    return FinalizeCompute(collections_to_expr([collection])).optimize()


def _merged(tasks_of: Callable[[Any], dict[Any, Any]], parts: list[Any]) -> dict[Any, Any]:
    return {key: task for part in parts for key, task in tasks_of(_expression(part)).items()}


def _unpickled(expr: Any) -> dict[Any, Any]:
    """Return the tasks of *expr* as the scheduler opens them for who may submit code."""
    tasks: dict[Any, Any] = convert_legacy_graph(
        cloudpickle.loads(cloudpickle.dumps(expr)).__dask_graph__()
    )
    return tasks


def _opened(expr: Any) -> dict[Any, Any]:
    """Return the tasks of *expr* as the scheduler opens them."""
    data, *buffers = approved.written(expr, GRANT, Limits()).frames
    handed = approved.opened(pickles.loads(data, buffers=buffers, profile=_PROFILE))
    tasks: dict[Any, Any] = handed.frames[0].take().__dask_graph__()
    return tasks


def _carried(expr: Any) -> dict[Any, Any]:
    """Return the tasks of *expr* as workers get them from the scheduler that opened it."""
    carried = {}
    for key, task in _opened(expr).items():
        _, (data, *buffers) = approved.handed_on(task)
        carried[key] = pickles.loads(data, buffers=buffers, profile=_PROFILE)
    return carried


def _through(expr: Any, keys: Any, **_: Any) -> Any:
    return dask.get(_carried(LLGExpr(expr) if isinstance(expr, dict) else expr), keys)


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, pd.DataFrame | pd.Series | pd.Index):
        return _same_frames(one, other)
    if isinstance(one, np.ma.MaskedArray):
        masks = np.ma.getmaskarray(one), np.ma.getmaskarray(other)
        return np.array_equal(*masks) and _same(np.ma.filled(one, 0), np.ma.filled(other, 0))
    if isinstance(one, np.ndarray) and one.dtype.kind in "biufc":
        same = one.dtype == other.dtype and one.shape == other.shape
        return same and np.allclose(one, other, equal_nan=True)
    return str(one) == str(other)


def _same_frames(one: Any, other: Any) -> bool:
    kind = next(k for k in (pd.DataFrame, pd.Series, pd.Index) if isinstance(one, k))
    try:
        getattr(pd.testing, f"assert_{kind.__name__.replace('Data', '').lower()}_equal")(one, other)
    except AssertionError:
        return False
    return True
