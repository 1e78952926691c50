"""A conversation with a stock peer without a socket, and real clusters without safeser."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed.protocol import dumps

from safeser.channel import OpenLink
from safeser.dask.stock.conversation import GuardedConversation
from safeser.policy import Policy
from tests.conftest import Witness, base_environment

GREETING = {"compression": None, "python": (3, 11, 7), "pickle-protocol": 5}
ADDRESS = "tcp://127.0.0.1:8786"


class Peer:
    """A stock peer who says what it likes, and the guarded side that reads it."""

    def __init__(self, audit: Any, policy: Policy, **options: Any) -> None:
        self.link = OpenLink(
            local="client", policy=policy, audit=audit, transport="tcp", address=ADDRESS
        )
        self.audit = audit
        self.conversation = GuardedConversation(
            self.link, **{"deserializers": ("dask", "msgpack"), **options}
        )

    def greet(self) -> Peer:
        self.conversation.note_sent(GREETING)
        assert self.hear(GREETING) == GREETING
        return self

    def hear(self, message: Any, **options: Any) -> Any:
        """Return what Dask reads when the peer writes *message* by Dask's own codec."""
        return self.hear_frames(dumps(message, **options))

    def hear_frames(self, frames: Any) -> Any:
        views = [memoryview(bytearray(frame)) for frame in map(memoryview_of, frames)]
        return self.conversation.receive(self.link.hear(views), None)

    def answer(self, reply: Any, *, op: str = "get_metadata", **asked: Any) -> Any:
        """Return what Dask reads of *reply* to a request for *op*."""
        self.conversation.note_sent({"op": op, **asked})
        return self.hear(reply)

    def stream(self) -> Peer:
        self.conversation.note_sent({"op": "register-client", "client": "c", "reply": False})
        assert self.hear([{"op": "stream-start"}]) == ({"op": "stream-start"},)
        return self

    @property
    def rules(self) -> list[str]:
        return self.audit.rules


def memoryview_of(frame: Any) -> memoryview:
    return memoryview(frame).cast("B")


@pytest.fixture(scope="session")
def make_peer() -> Any:
    policy = Policy.load("stock-cluster")
    return lambda **options: Peer(Witness(), policy, **options)


@pytest.fixture
def peer(make_peer: Any) -> Peer:
    return make_peer().greet()


# --- real clusters without safeser ----------------------------------------------------------------

DASK = str(Path(sys.executable).parent / "dask")
PATIENCE = 60.0
HERE = str(Path(__file__).parent)


class Stock:
    """A scheduler and a worker by the commands that users type, without safeser."""

    def __init__(self, path: Path, scheme: str) -> None:
        self.path = path
        self.scheme = scheme
        self.tls = certificates(path) if scheme == "tls" else {}
        self._running: list[subprocess.Popen[bytes]] = []

    def begin(self) -> Stock:
        where = self.path / "scheduler.json"
        files = [f"--tls-{name}={path}" for name, path in self.tls.items()]
        common = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard"]
        common += files
        self._start("scheduler", "--port", "0", "--scheduler-file", str(where), *common)
        self.address = self._until(where)
        scratch = ["--local-directory", str(self.path / "scratch"), "--nthreads", "2"]
        self._start("worker", self.address, "--no-nanny", *scratch, *common)
        return self

    def _start(self, role: str, *arguments: str) -> None:
        if role == "scheduler":
            arguments = ("--protocol", self.scheme, *arguments)
        with (self.path / f"{role}.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(
                    [DASK, role, *arguments],
                    **{"stdout": log, "stderr": log, "env": environment(), "cwd": self.path},
                    start_new_session=True,
                )
            )

    def _until(self, where: Path) -> str:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError, KeyError):
                return str(json.loads(where.read_text())["address"])
            time.sleep(0.02)
        raise AssertionError((self.path / "scheduler.log").read_text())

    def stop(self) -> None:
        """End all at once: nothing that they would do at their ends is tested."""
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=15)

    def user(self, program: Path, *arguments: str, **settings: str) -> dict[str, Any]:
        """Run a program as a user of this cluster; return what it prints as JSON."""
        ended = subprocess.run(
            [sys.executable, str(program), self.address, json.dumps(self.tls), *arguments],
            **{"capture_output": True, "text": True, "check": False, "timeout": 120},
            env=environment(**settings),
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        said: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return {**said, "err": ended.stderr}


def environment(**settings: str) -> dict[str, str]:
    kept = base_environment()
    own = {
        # The functions that users submit are imported on the cluster, too.
        "PYTHONPATH": os.pathsep.join(filter(None, [HERE, kept.get("PYTHONPATH", "")])),
    }
    return {**kept, **own, **settings}


def certificates(path: Path) -> dict[str, str]:
    """Make an authority and one certificate of it, for all; return paths as Dask names them."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files = {"cert": made.public_bytes(pem), "key": secret}
    for each, content in files.items():
        (path / each).write_bytes(content)
    cert, key_file = str(path / "cert"), str(path / "key")
    return {"ca-file": cert, "cert": cert, "key": key_file}


@pytest.fixture(scope="module")
def stocks(tmp_path_factory: Any) -> Any:
    """Return what gives the stock cluster of a scheme."""
    made: dict[str, Stock] = {}

    def of(scheme: str) -> Stock:
        if scheme not in made:
            made[scheme] = Stock(tmp_path_factory.mktemp(scheme), scheme)
            made[scheme].begin()
        return made[scheme]

    yield of
    for each in made.values():
        each.stop()
