"""The probe must be able to fail: it sees what a peer sends, by whatever way it is opened."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest

PRELUDE = "from examples.demo import probe; p = probe.install()\n"
# A pickle that names a global, as bytes: this process did not make it.
PEER = pickle.dumps(complex(1, 2))


def seen(script: str) -> dict[str, object]:
    """Return the report of a process that runs *script*, where PEER is a peer's pickle."""
    program = (
        f"{PRELUDE}PEER = bytes.fromhex('{PEER.hex()}')\nimport io, pickle, _pickle, json\n"
        f"{script}\nprint(json.dumps(p.report().as_dict()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "opened",
    [
        "pickle.loads(PEER)",
        "pickle.loads(bytearray(PEER))",
        "_pickle.loads(PEER)",
        "pickle._loads(PEER)",
        "pickle.load(io.BytesIO(PEER))",
        "_pickle.load(io.BytesIO(PEER))",
        "pickle.Unpickler(io.BytesIO(PEER)).load()",
        "_pickle.Unpickler(io.BytesIO(PEER)).load()",
        "pickle._Unpickler(io.BytesIO(PEER)).load()",
        "import cloudpickle; cloudpickle.loads(PEER)",
        "from distributed.protocol.pickle import loads; loads(PEER)",
    ],
)
def test_a_pickle_of_a_peer_is_seen(opened: str) -> None:
    report = seen(opened)
    assert (report["peer"], report["unwrapped"]) == (1, [])
    assert report["peer_globals"] == ["builtins:complex"]


@pytest.mark.parametrize(
    "round_trip",
    [
        "pickle.loads(pickle.dumps([1j]))",
        "pickle._loads(pickle._dumps([1j]))",
        "f = io.BytesIO(); pickle.dump([1j], f); f.seek(0); pickle.load(f)",
        "import cloudpickle; pickle.loads(cloudpickle.dumps(lambda: 1))",
        "b = []; d = pickle.dumps(pickle.PickleBuffer(b'x'), 5, buffer_callback=b.append);"
        "pickle.loads(d, buffers=b)",
    ],
)
def test_what_the_process_made_itself_is_its_own(round_trip: str) -> None:
    report = seen(round_trip)
    assert (report["own"], report["peer"], report["unwrapped"]) == (1, 0, [])


def test_a_pickle_that_fails_to_load_counts() -> None:
    report = seen("try:\n    pickle.loads(PEER[:-1])\nexcept Exception: pass")
    assert report["peer"] == 1


def test_a_pickle_inside_a_pickle_counts_for_itself() -> None:
    report = seen(
        "class Inner:\n    def __reduce__(self): return pickle.loads, (PEER,)\n"
        "pickle.loads(pickle.dumps(Inner()))"
    )
    assert (report["own"], report["peer"]) == (1, 1)
    assert report["peer_globals"] == ["builtins:complex"]


def test_an_unpickler_that_was_kept_from_before_is_seen_by_its_globals() -> None:
    script = "class Kept(pickle.Unpickler.__mro__[1]): pass\nKept(io.BytesIO(PEER)).load()"
    assert seen(script)["unwrapped"] == ["builtins:complex"]
