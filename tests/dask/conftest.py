"""Two conversations back to back over real links, and a peer that says what it likes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import shutil
import warnings
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import dask
import msgpack
import pytest
from distributed.comm import registry
from distributed.comm.core import CommClosedError, connect, listen
from distributed.core import clean_exception

from safeser.dask import comm_backend
from safeser.dask.messages.conversation import SKIP, Conversation
from safeser.dask.messages.pending import pending
from safeser.dask.security import Security
from safeser.dask.settings import close_channels_in
from safeser.dask.wire.codec import PayloadRow, parse
from safeser.errors import SafeserError
from safeser.identities import make_identities
from safeser.operations import Server
from safeser.policy.ready import locate
from tests.dask.attacks.rows import forms_of
from tests.dask.forged import Eager, forged
from tests.dask.patched import OF_SERVERS, patched

GREETING = {"compression": None, "pickle-protocol": 5, "python": (3, 11, 7)}

_SERVERS = {"scheduler": Server.SCHEDULER, "worker": Server.WORKER, "nanny": Server.NANNY}


class Talk:
    """One connection: *asker* opened it, *server* answers. Both are honest until told otherwise."""

    SKIP = SKIP
    Row = PayloadRow
    Eager = Eager
    forged = staticmethod(forged)

    def __init__(
        self,
        doors: Any,
        asker: str,
        server: str,
        policy: str,
        *,
        server_options: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.near, self.far = doors.links(asker, server, policy)
        role = _SERVERS[server]
        self.asker = Conversation(self.near, server=None, opens=asker != "scheduler", **options)
        self.server = Conversation(
            self.far, server=role, opens=role is not Server.SCHEDULER, **server_options or {}
        )
        self.answers: list[Any] = []

    def greet(self) -> Talk:
        remote = {**GREETING, "safeser-server": self.server.server.value}
        assert self.request(GREETING) == GREETING
        assert self.reply(remote) == GREETING
        return self

    def registered(self, client: str = "Client-1") -> Talk:
        """Have the asker registered as *client*, on another connection."""
        assert self.server._identity._client_ids.claim(client, self.far.peer)
        return self

    # --- honest ---------------------------------------------------------------------------------

    def request(self, message: Any, serializers: Any = None) -> Any:
        """Send as Dask does from the asker; return what Dask reads on the server."""
        return self._to_server(self.asker.send(message, serializers))

    def reply(self, message: Any, deserializers: Any = None) -> Any:
        return self._to_asker(self.server.send(message), deserializers)

    # --- hostile --------------------------------------------------------------------------------

    def attack(self, message: Any) -> Any:
        """Have the asker send *message* unjudged; return what Dask reads on the server."""
        return self.raw(*forged(message))

    def attack_back(self, message: Any, deserializers: Any = None) -> Any:
        return self._to_asker(forged(message), deserializers)

    def raw(self, *frames: Any) -> Any:
        # The attacker's own side reads what comes back.
        self.asker._asked = pending({"op": "identity"})
        return self._to_server(list(frames))

    def raw_back(self, *frames: bytes) -> Any:
        return self._to_asker(list(frames), None)

    def _to_server(self, frames: list[Any]) -> Any:
        got = self._carry(self.near, self.far, self.server, frames, None)
        self.answers = [self._answer(answer) for answer in self.server.take_answers()]
        return got

    def _answer(self, frames: list[Any]) -> Any:
        """Return what Dask reads of an answer on the asker, or the refusal that a relay raises."""
        try:
            return self._carry(self.far, self.near, self.asker, frames, None)
        except SafeserError as error:
            if self.asker._opens:
                raise
            return error

    def _to_asker(self, frames: list[Any], deserializers: Any) -> Any:
        return self._carry(self.far, self.near, self.asker, frames, deserializers)

    @staticmethod
    def _carry(source: Any, target: Any, reader: Any, frames: Any, deserializers: Any) -> Any:
        verified = target.verify(source.session.seal(b"", frames))
        return reader.receive(verified, deserializers)

    def refuses(self, message: Any) -> None:
        """Check that the server refuses what the attacker says, and that Dask can read why."""
        before = len(self.refused_by_server)
        assert self.attack(message) is SKIP
        assert len(self.refused_by_server) > before
        for answer in self.answers:
            if isinstance(answer, dict) and isinstance(answer["exception"], Exception):
                clean_exception(answer["exception"], answer["traceback"])

    @staticmethod
    def in_msgpack(data: Any) -> tuple[dict[str, Any], tuple[bytes, ...]]:
        """Return the header and frames of a payload of family msgpack."""
        return {"serializer": "msgpack"}, (msgpack.packb(data),)

    # --- streams --------------------------------------------------------------------------------

    def client_stream(self, client: str = "Client-1") -> Talk:
        self.request({"op": "register-client", "client": client, "reply": False, "versions": {}})
        start = self.reply([{"op": "stream-start"}])
        assert start == ({"op": "stream-start"},)
        return self

    def worker_stream(self, address: str = "safeser://127.0.0.1:1") -> Talk:
        self.request({"op": "register-worker", "address": address, "reply": False})
        self.reply({"status": "OK", "worker-plugins": {}})
        return self

    # --- what was recorded ----------------------------------------------------------------------

    @property
    def refused_by_server(self) -> list[str]:
        return self.far.audit.rules

    @property
    def refused_by_asker(self) -> list[str]:
        return self.near.audit.rules

    def sent(self, conversation: Conversation, message: Any) -> Any:
        """Return what *conversation* would write, parsed."""
        return self.parsed(conversation.send(message), conversation)

    def parsed(self, frames: list[Any], conversation: Conversation) -> Any:
        return parse(frames, conversation.link.policy.limits)

    def carried_back(self, frames: list[Any]) -> Any:
        """Return what Dask reads on the asker of *frames* that the server wrote."""
        return self._to_asker(frames, None)


@pytest.fixture(autouse=True, scope="session")
def _rows_of_servers():
    """Replace what leaves every server alone that no test registers."""
    with patched(*OF_SERVERS):
        yield


@pytest.fixture
def talk(doors: Any) -> Callable[..., Talk]:
    """Return a connection whose Dask handshake is over."""

    def made(asker: str, server: str = "scheduler", policy: str = "demo", **options: Any) -> Talk:
        return Talk(doors, asker, server, policy, **options).greet()

    return made


@pytest.fixture
def forms(marker: Any) -> dict[str, Any]:
    """Return the ways in which a pickle can stand in a field."""
    return forms_of(marker.pickle)


@pytest.fixture
def run() -> Callable[..., Any]:
    def call(coroutine: Any, timeout: float = 30) -> Any:
        async def bounded() -> Any:
            return await asyncio.wait_for(coroutine, timeout)

        return asyncio.run(bounded())

    return call


# --- real sockets -------------------------------------------------------------------------------

PRINCIPALS = ("scheduler", "worker", "nanny", "client", "stranger")


@pytest.fixture(scope="session")
def _keys_of_all(tmp_path_factory):
    """Keys to copy: each takes a write that waits for the disk."""
    keys = tmp_path_factory.mktemp("keys-of-all") / "keys"
    make_identities(keys, PRINCIPALS)
    return keys


@pytest.fixture
def net(tmp_path, monkeypatch, _keys_of_all):
    """Settings for each role, and the scheme in this process beside stock ones."""
    keys = tmp_path / "keys"
    shutil.copytree(_keys_of_all, keys)
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(f"os.{name}", lambda handle: None)
    roles = {role: {"identity": str(keys / f"{role}.key")} for role in PRINCIPALS[:4]}
    monkeypatch.setitem(registry.backends, "safeser", comm_backend.Backend())
    policy = tmp_path / "policy.yaml"
    policy.write_text(locate("default").read_text("utf-8"))
    settings = {"audit": str(tmp_path / "audit"), "policy": str(policy), **roles}
    with dask.config.set({"safeser": settings}):
        yield Net(keys)
    close_channels_in(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


class Net:
    def __init__(self, keys):
        self.keys = keys
        self.seen = []

    def arguments(self, role="client", *, scheduler_at=None, **options):
        security = Security(**options).narrowed(None, scheduler_at=scheduler_at)
        return security.get_connection_args(role)

    @contextlib.asynccontextmanager
    async def serving(self, name="Scheduler", *, deserialize=True, address="safeser://127.0.0.1:0"):
        seen = self.seen

        async def handle(self, comm):
            try:
                while True:
                    message = await comm.read()
                    seen.append(message)
                    if message == "OK":  # the last word of an exchange
                        continue
                    await comm.write({"status": "OK", "got": message.get("default")})
            except CommClosedError:
                comm.abort()

        members = {"__module__": "distributed.x", "handle": handle}
        kept = {"data": {}, "state": SimpleNamespace(actors={}), "nanny": None}  # as of a worker
        server = type(name, (), members | kept)()
        listener = await listen(address, server.handle, deserialize=deserialize)
        try:
            yield listener
        finally:
            listener.stop()
            await asyncio.sleep(0)

    async def asks(self, address, message=None, **options):
        comm = await connect(address, timeout=10, **self.arguments(**options))
        try:
            await comm.write(message or {"op": "nbytes", "keys": [], "reply": True})
            return await comm.read()
        finally:
            await comm.close()
