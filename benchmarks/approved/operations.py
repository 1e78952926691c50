"""Which of Dask's array and dataframe operations an analyst may submit: judged one by one.

The one rule: an operation counts as working only if the scheduler's own reader takes the very bytes
that would be sent, and what it made of them computes to what Dask computes without any of this.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Iterator
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
from dask._expr import FinalizeCompute
from dask._task_spec import convert_legacy_graph
from dask.base import collections_to_expr, flatten, is_dask_collection
from distributed.protocol.serialize import deserialize

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

    :param outcome: ``works``, ``refused`` (by us), ``differs``, or ``none`` (not Dask's, here).
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
    }


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with (
        warnings.catch_warnings(),
        # Some operations compute while they are spelled: lengths, divisions, categories.
        dask.config.set(scheduler=_through),
        approved.methods(),
    ):
        warnings.simplefilter("ignore")
        yield


def judge(section: str, text: str, given: dict[str, Any]) -> Verdict:
    """Return what becomes of one operation if an analyst submits it."""
    with _quiet():
        try:
            # The expressions are those of this package's own lists.
            collection = eval(text, dict(given))
        except SafeserError as error:
            return Verdict(section, text, "refused", error.message)
        except Exception as error:  # whatever Dask says to what it does not have
            return Verdict(section, text, "none", type(error).__name__)
        if not is_dask_collection(collection):
            return Verdict(section, text, "none", f"gives a {type(collection).__name__}")
        try:
            expr = _expression(collection)
            tasks = _carried(expr)
        except SafeserError as error:
            return Verdict(section, text, "refused", error.message)
        try:
            wanted = collection.compute(scheduler="synchronous")
        except Exception as error:
            return Verdict(section, text, "none", type(error).__name__)
        try:
            got = dask.get(tasks, next(iter(flatten(expr.__dask_keys__()))))
        except Exception as error:  # what the analyst would see on the future
            return Verdict(section, text, "refused", f"{type(error).__name__}: {error}")
        same = _same(got, wanted)
    return Verdict(section, text, "works" if same else "differs")


def conflicts(text: str, given: dict[str, Any]) -> list[Any]:
    """Return the keys that are refused to one of two who compute *text* at the same time: an
    analyst, and somebody who may submit code. There are none if they are taken for the same.
    """
    with _quiet():
        approved_tasks = _opened(_expression(eval(text, dict(given))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expr = cloudpickle.loads(cloudpickle.dumps(_expression(eval(text, dict(given)))))
        coded = convert_legacy_graph(expr.__dask_graph__())
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


def _opened(expr: Any) -> dict[Any, Any]:
    """Return the tasks of *expr* as the scheduler opens them."""
    data, *buffers = approved.written(expr, GRANT, Limits()).frames
    handed = approved.opened(pickles.loads(data, buffers=buffers, profile=_PROFILE))
    tasks: dict[Any, Any] = deserialize(handed.header, handed.frames).__dask_graph__()
    return tasks


def _carried(expr: Any) -> dict[Any, Any]:
    """Return the tasks of *expr* as workers get them from the scheduler that opened it."""
    tasks = _opened(expr)
    return {key: cloudpickle.loads(cloudpickle.dumps(task)) for key, task in tasks.items()}


def _through(expr: Any, keys: Any, **_: Any) -> Any:
    return dask.get(_carried(expr), keys)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, pd.DataFrame | pd.Series | pd.Index):
        return bool(one.equals(other)) or str(one) == str(other)
    try:
        return bool(np.allclose(np.asarray(one, float), np.asarray(other, float), equal_nan=True))
    except (TypeError, ValueError):
        return str(one) == str(other)
