"""``safeser.tokenize`` as Dask's tokenizer, in a process that the setting is made for.

That tokens agree between processes is shown in tests/tokens.
"""

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
import dask, dask.array as da
from dask.tokenize import TokenizationError, normalize_token, tokenize
import safeser.dask
from safeser.dask.patches import install

dask.config.set(scheduler="sync")
install()

class Held:
    def __init__(self, x): self.x, self.lock = x, threading.Lock()
class Below(Held): pass
normalize_token.register(Held, lambda held: ("Held", held.x))

def fails(**options):
    try:
        tokenize({"x": threading.Lock()}, **options)
    except TokenizationError as error:
        return [isinstance(error, safeser.SafeserError), getattr(error, "rule", ""), str(error)]

out = {"strict": fails(ensure_deterministic=True), "lenient": fails()}
with dask.config.set({"tokenize.ensure-deterministic": True}):
    out["configured"], out["not_strict"] = fails(), fails(ensure_deterministic=False)
out["same"] = tokenize(1, b=4, a=3) == tokenize(1, a=3, b=4)
out["differ"] = [tokenize(1, 2) != tokenize((1, 2)), tokenize(Held(1)) != tokenize(Held(2)),
                 tokenize(Held(1)) != tokenize(Below(1)), tokenize(1) != tokenize(True),
                 tokenize(1, a=2) != tokenize(1, [("a", 2)])]
x = da.ones((20, 20), chunks=5)
out["results"] = [float((x + 1).T.sum().compute()), float((x @ x).mean().compute())]
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def seen():
    names = {k: v for k, v in os.environ.items() if not k.startswith("DASK_SAFESER")}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**names, "DASK_SAFESER__TOKENIZER": "safeser"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def test_an_error_is_of_dasks_class_and_names_the_culprit(seen):
    for name in ("strict", "configured"):
        is_ours, rule, text = seen[name]
        assert is_ours
        assert rule == "token.nondeterministic"
        assert "key 'x'" in text
    assert seen["lenient"] is seen["not_strict"] is None


def test_collections_compute_as_ever_and_arguments_count_by_name_and_type(seen):
    assert seen["results"] == [800.0, 20.0]
    assert seen["same"]
    assert all(seen["differ"])


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
