"""A conversation with a stock peer without a socket, and real clusters without safeser."""

from __future__ import annotations

import datetime
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from distributed.protocol import dumps

from safeser.channel import OpenLink
from safeser.dask.stock.comm import GuardedConversation
from safeser.policy import Policy
from tests.conftest import Witness
from tests.processes import DASK, Folder, address_in, base_environment, until

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

HERE = str(Path(__file__).parent)


class Stock(Folder):
    """A scheduler and a worker by the commands that users type, without safeser."""

    def __init__(self, path: Path, scheme: str) -> None:
        super().__init__(path)
        self.scheme = scheme
        self.tls = certificates(path) if scheme == "tls" else {}

    def begin(self) -> None:
        where = self.path / "scheduler.json"
        common = ["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard"]
        common += [f"--tls-{name}={path}" for name, path in self.tls.items()]
        scheduler = [DASK, "scheduler", "--protocol", self.scheme, "--port", "0", *common]
        scheduler += ["--scheduler-file", str(where)]
        self.start("scheduler", *scheduler, environment=environment())
        self.address = until("the scheduler's file", lambda: address_in(where))
        worker = [DASK, "worker", self.address, "--no-nanny", "--nthreads", "2", *common]
        worker += ["--local-directory", str(self.path / "scratch")]
        self.start("worker", *worker, environment=environment())

    def user(self, program: Path, *arguments: str, **settings: str) -> dict[str, Any]:
        """Run a program as a user of this cluster; return what it prints as JSON."""
        command = (sys.executable, str(program), self.address, json.dumps(self.tls), *arguments)
        ended = self.call(*command, environment=environment(**settings), timeout=120)
        return {**ended.answer, "err": ended.err}


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
