"""Processes with different hash seeds agree, and so do copies, also those in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
#: cloudpickle pickles a cached function by its name alone, and a memoryview as bytes.
NOT_COPIED = {"function cached", "memoryview"}


def start(script, *words, seed):
    return subprocess.Popen(
        [sys.executable, HERE / script, *words],
        env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(HERE.parents[1])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def answer(process, text=None):
    output, _ = process.communicate(text, timeout=240)
    assert process.returncode == 0
    return json.loads(output)


@pytest.fixture(scope="module")
def tokens():
    processes = [start("objects.py", "write", seed=seed) for seed in (1, 2)]
    return [answer(each) for each in processes]


@pytest.mark.slow
def test_two_processes_with_other_hash_seeds_agree(tokens):
    first, second = tokens
    assert len(first) >= 60
    assert all(len(each["token"]) == 64 for each in first.values()), "not deterministic"
    differ = [name for name in first if first[name]["token"] != second[name]["token"]]
    assert differ == []


def test_the_same_again_and_copies_have_the_same_token(tokens):
    differ = [
        (name, way)
        for found in tokens
        for name, ways in found.items()
        for way, token in ways.items()
        if token not in (None, ways["token"]) and way != "pickle of it"
    ]
    assert differ == []
    copied = [name for name, ways in tokens[0].items() if ways["cloudpickle"]]
    assert len(copied) >= 60


@pytest.mark.slow
def test_what_a_third_process_unpickles_has_the_same_token(tokens):
    pickles = {
        name: ways["pickle of it"]
        for name, ways in tokens[0].items()
        if ways["pickle of it"] and name not in NOT_COPIED
    }
    found = answer(start("reader.py", seed=3), json.dumps(pickles))
    assert len(found) >= 60
    assert [name for name, token in found.items() if token != tokens[0][name]["token"]] == []


def test_different_objects_have_different_tokens(tokens):
    found = {name: ways["token"] for name, ways in tokens[0].items()}
    assert len(set(found.values())) == len(found)
