"""``safeser.tokenize`` as Dask's tokenizer, in processes that the setting is made for."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import dask
import pytest

from safeser.dask.settings import settings_for, uses_own_tokenizer
from safeser.errors import ConfigError
from tests.refusal import refusal

PROGRAM = """
import json, threading
import dask, dask.array as da, dask.bag as db, dask.dataframe as dd, numpy as np, pandas as pd
from dask import delayed
from dask.tokenize import TokenizationError, normalize_token, tokenize
import safeser.dask
from safeser.dask.patches import install

dask.config.set(scheduler="sync")
install()
out = {}

class Held:
    def __init__(self, x): self.x, self.lock = x, threading.Lock()
class Below(Held): pass
class Own(Held):
    def __dask_tokenize__(self): return self.x
normalize_token.register(Held, lambda held: ("Held", held.x))

out["tokens"] = [tokenize(each) for each in (
    {"a", "b", "c"}, lambda x: x in {"a", "b"}, Held(1), Below(1), Own(1), np.arange(3.0),
    pd.DataFrame({"a": [1]}))] + [tokenize(1, 2, a=3, b=4)]
out["same"] = tokenize(1, b=4, a=3) == tokenize(1, a=3, b=4)
out["differ"] = [tokenize(1, 2) != tokenize((1, 2)), tokenize(Held(1)) != tokenize(Held(2)),
                 tokenize(Held(1)) != tokenize(Below(1)), tokenize(1) != tokenize(True),
                 tokenize(1, a=2) != tokenize(1, [("a", 2)])]

def fails(**options):
    try:
        tokenize({"x": threading.Lock()}, **options)
    except TokenizationError as error:
        return [isinstance(error, safeser.SafeserError), getattr(error, "rule", ""), str(error)]

out["strict"] = fails(ensure_deterministic=True)
with dask.config.set({"tokenize.ensure-deterministic": True}):
    out["configured"] = fails()
    out["not_strict"] = fails(ensure_deterministic=False)
out["lenient"] = fails()

x = da.ones((20, 20), chunks=5)
frame = dd.from_pandas(pd.DataFrame({"a": range(10), "b": list("abcde") * 2}), npartitions=3)
out["results"] = [
    float((x + 1).T.sum().compute()), float((x @ x).mean().compute()),
    frame.groupby("b").a.sum().compute().to_dict(), len(frame.merge(frame, on="a").compute()),
    db.from_sequence(range(10), npartitions=3).map(lambda v: v * 2).sum().compute(),
    delayed(sum)([delayed(lambda a: a)(1), 2]).compute(),
]
out["names"] = [x.name, (x + 1).name, frame.groupby("b").a.sum()._name]
print(json.dumps(out))
"""


def run(seed, program=PROGRAM, **environment):
    names = {k: v for k, v in os.environ.items() if not k.startswith("DASK_SAFESER")}
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**names, "PYTHONHASHSEED": str(seed), **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def seen():
    return [run(seed, DASK_SAFESER__TOKENIZER="safeser") for seed in (1, 2)]


@pytest.mark.slow
def test_tokens_agree_between_processes(seen):
    first, second = seen
    assert first["tokens"] == second["tokens"]
    assert first["names"] == second["names"]
    assert len(set(first["tokens"])) == len(first["tokens"])
    assert all(len(token) == 32 for token in first["tokens"])  # as long as Dask's


def test_an_error_is_of_dasks_class_and_names_the_culprit(seen):
    for name in ("strict", "configured"):
        is_ours, rule, text = seen[0][name]
        assert is_ours
        assert rule == "token.nondeterministic"
        assert "key 'x'" in text
    assert seen[0]["lenient"] is None
    assert seen[0]["not_strict"] is None


def test_collections_compute_as_ever_and_arguments_count_by_name_and_type(seen):
    by_letter = {"a": 5, "b": 7, "c": 9, "d": 11, "e": 13}
    assert seen[0]["results"] == [800.0, 20.0, by_letter, 10, 90, 3]
    assert seen[0]["same"]
    assert all(seen[0]["differ"])


@pytest.mark.parametrize(("value", "own"), [("safeser", True), ("dask", False), (None, False)])
def test_the_setting_belongs_to_no_role(value, own):
    with dask.config.set({"safeser.tokenizer": value}):
        assert uses_own_tokenizer() is own
        settings_for("client")


@pytest.mark.parametrize("value", ["safser", 1, ["safeser"]])
def test_another_tokenizer_is_refused(value):
    with (
        dask.config.set({"safeser.tokenizer": value}),
        refusal(ConfigError, "config.settings") as caught,
    ):
        uses_own_tokenizer()
    assert "dask or safeser" in caught.value.fix
