"""A process on safeser:// speaks no other scheme: shown in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, json, sys
from distributed.comm import registry
from distributed.comm.core import connect, listen
from distributed.comm.addressing import get_address_host, get_local_address_for, resolve_address
from safeser.errors import ConfigError

def rule(call, *arguments, **options):
    try:
        done = call(*arguments, **options)
    except ConfigError as error:
        return error.rule
    return f"no error: {done!r}"

async def speak(scheme):
    async def handler(comm):
        raise AssertionError
    out = {}
    try:
        await connect(f"{scheme}://127.0.0.1:1", timeout=5)
    except ConfigError as error:
        out["connect"] = error.rule
    try:
        await listen(f"{scheme}://127.0.0.1:0", handler)
    except ConfigError as error:
        out["listen"] = error.rule
    address = f"{scheme}://127.0.0.1:1"
    for function in (get_address_host, get_local_address_for, resolve_address):
        out[function.__name__] = rule(function, address)
    return out

async def main():
    backend = registry.get_backend("safeser")
    out = {scheme: await speak(scheme) for scheme in ("tcp", "tls", "ws", "wss", "inproc", "ucx")}
    again = registry.backends
    from safeser.dask.patches import install
    install()
    out["same"] = registry.backends is again
    late = object()
    out["set"] = rule(registry.backends.__setitem__, "tcp", late)
    out["setdefault"] = rule(registry.backends.setdefault, "new", late)
    out["update"] = rule(registry.backends.update, {"tcp": late})
    out["keywords"] = rule(registry.backends.update, tcp=late)
    registry.backends["safeser"] = backend
    out["unknown"] = await speak("never-heard-of")
    out["named"] = rule(resolve_address, "\x1b[31m" + 99 * "x" + "://127.0.0.1:1")
    out["default"] = registry.backends.get("never-heard-of", 3)
    print(json.dumps(out))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def said():
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@pytest.mark.parametrize("scheme", ["tcp", "tls", "ws", "wss", "inproc", "ucx"])
def test_other_schemes_neither_connect_nor_listen(said, scheme):
    assert len(said[scheme]) == 5
    assert set(said[scheme].values()) == {"scheme.sealed"}


def test_late_registration_fails(said):
    for way in ("set", "setdefault", "update", "keywords"):
        assert said[way] == "scheme.sealed"
    assert said["default"] == 3


def test_a_scheme_that_nobody_knows_is_closed_like_the_others(said):
    """Dask would look for an installed package of that name, and raise an error unrecorded."""
    assert len(said["unknown"]) == 5
    assert {*said["unknown"].values(), said["named"]} == {"scheme.sealed"}


def test_sealing_twice_changes_nothing(said):
    assert said["same"] is True


@pytest.mark.slow
def test_importing_safeser_alone_seals_nothing():
    program = (
        "import safeser, safeser.dask.client\nfrom distributed.comm import registry\n"
        "assert type(registry.backends) is dict\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
