"""What Dask opens beside its comms, without a cluster: servers, pages, folders."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.http import health, proxy
from distributed.http.routing import RoutingApplication
from distributed.http.scheduler import api, info, json, missing_bokeh
from tornado.httpserver import HTTPServer
from tornado.web import RequestHandler

from safeser.dask.worker import process_surface
from safeser.errors import ConfigError
from safeser.operations import Server
from safeser.policy import Policy
from tests.dask.patched import serve, with_rows
from tests.refusal import refusal

TEXT = """
safeser: 1
name: test
revision: 1
principals: {a: {}, b: {}}
contexts: [{name: any, sender: a, recipient: b}]
"""


def policy(address: str = "") -> Policy:
    return Policy.parse(TEXT + (f'dashboard: {{address: "{address}"}}\n' if address else ""))


class Stock:
    """A server of Dask's as far as its web server goes."""

    def __init__(self, *routes: Any, hosts: tuple[str, ...] = ("0.0.0.0",)) -> None:
        self.http_application = RoutingApplication(list(routes))
        self.hosts = hosts
        self.http_server: Any = None

    def start_http_server(self) -> None:
        self.http_server = HTTPServer(self.http_application)
        for host in self.hosts:
            self.http_server.listen(0, address=host)
        self.http_server.port = self.bound[0][1]

    @property
    def bound(self) -> list[tuple[str, int]]:
        return [made.getsockname()[:2] for made in self.http_server._sockets.values()]


Node = with_rows(Stock, "distributed.node:ServerNode.start_http_server")


def routes(module: Any) -> list[Any]:
    return [(f"/{path.lstrip('/')}", handler, {}) for path, handler, *_ in module.routes]


def confined(
    node: Stock, rules: Policy, *, started: bool = True, answers: bytes = b""
) -> list[tuple[str, int]]:
    async def go() -> list[tuple[str, int]]:
        try:
            if started:
                node.start_http_server()
                before = node.http_server.port
                process_surface.confine(node, rules)
                assert node.http_server.port == before
            else:
                serve(node, Server.WORKER, SimpleNamespace(policy=rules, audit=None))
                process_surface.confine(node, rules)
                node.start_http_server()
            # It serves where it says, and nowhere else.
            reader, writer = await asyncio.open_connection(*node.bound[0])
            writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
            await writer.wait_closed()
            assert answer.startswith(b"HTTP/1.1 " + answers)
            return node.bound
        finally:
            if node.http_server is not None:
                node.http_server.stop()
                await node.http_server.close_all_connections()

    return asyncio.run(go())


@pytest.mark.parametrize("started", [True, False])
@pytest.mark.parametrize(
    ("hosts", "address", "expected"),
    [
        (("0.0.0.0",), "", ["127.0.0.1"]),
        (("127.0.0.1",), "", ["127.0.0.1"]),
        (("0.0.0.0", "127.0.0.1"), "", ["127.0.0.1", "127.0.0.1"]),
        (("0.0.0.0",), "127.0.0.2", ["127.0.0.2"]),
        (("127.0.0.1",), "127.0.0.2", ["127.0.0.1"]),
        (("0.0.0.0",), "0.0.0.0", ["0.0.0.0"]),
    ],
)
def test_a_web_server_listens_on_loopback_or_where_policy_says(hosts, address, expected, started):
    bound = confined(Node(*routes(health), hosts=hosts), policy(address), started=started)
    assert [host for host, _ in bound] == expected


@pytest.mark.parametrize(
    "spelled", ["localhost", "192.0.2", "::g", "1", "127.0.0.1:8787", "[127.0.0.1]", " "]
)
def test_the_policy_names_an_address_and_nothing_else(spelled):
    with pytest.raises(ConfigError):
        policy(spelled)
    assert policy("::1").dashboard == "::1"


class Shell(RequestHandler):
    pass


@pytest.mark.parametrize(
    ("more", "address", "rule"),
    [
        (routes(api), "", "config.http-routes"),
        ([("/shell", Shell)], "", "config.http-routes"),
        ([], "192.0.2.1", "config.dashboard"),  # which this machine does not have
        ([route for module in (info, json, missing_bokeh) for route in routes(module)], "", ""),
    ],
    ids=["api", "shell", "address", "as Dask has them"],
)
def test_pages_that_do_something_are_refused_and_an_address_of_nobody(more, address, rule):
    node = Node(*routes(health), *more)
    if not rule:
        assert confined(node, policy(address))
        return
    with refusal(ConfigError, rule):
        confined(node, policy(address))


def test_the_proxy_is_not_there():
    class Proxy(RequestHandler):
        __module__ = proxy.__name__

        def get(self) -> None:
            raise AssertionError("it was asked")

    assert confined(Node(("/health", Proxy)), policy(), answers=b"404 ")


def test_who_came_in_before_the_web_server_was_moved_is_not_answered():
    async def go() -> bytes:
        node = Node(*routes(health))
        node.start_http_server()
        try:
            # From loopback, as from anywhere: the port was open to all.
            reader, writer = await asyncio.open_connection("127.0.0.1", node.bound[0][1])
            while not node.http_server._connections:
                await asyncio.sleep(0)
            process_surface.confine(node, policy())
            with contextlib.suppress(ConnectionError):
                writer.write(b"GET /health HTTP/1.0\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                return await reader.read()
            return b""
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            node.http_server.stop()
            await node.http_server.close_all_connections()

    assert asyncio.run(go()) == b""


def test_a_server_with_jupyter_is_refused():
    with refusal(ConfigError, "config.jupyter"):
        process_surface.confine(SimpleNamespace(jupyter=True), policy())


# --- folders -------------------------------------------------------------------------------------


def kept_in(folder: Any) -> str:
    """Return the rule by which *folder* is refused as a server's own, if it is."""
    try:
        process_surface.confine(SimpleNamespace(local_directory=str(folder)), policy())
    except ConfigError as error:
        return error.rule
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    return ""


def linked(tmp_path: Any) -> Any:
    """Return a folder behind a link of one's own to a place that others may replace."""
    open_to_all, own = tmp_path / "open", tmp_path / "own"
    (open_to_all / "below" / "worker-1").mkdir(parents=True)
    own.mkdir()
    (own / "link").symlink_to(open_to_all / "below")
    open_to_all.chmod(0o777)
    return own / "link" / "worker-1"


def below(tmp_path: Any, mode: int) -> Any:
    folder = tmp_path / "space" / "worker-1"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    folder.parent.chmod(mode)
    return folder


def of_kind(tmp_path: Any, kind: str) -> Any:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "file").touch()
    return tmp_path / kind


FOLDERS = {
    "one's own": (partial(below, mode=0o755), True),
    **{f"below {mode:o}": (partial(below, mode=mode), False) for mode in (0o777, 0o775, 0o757)},
    # As /tmp: only its owner renames a folder there.
    "below a sticky one": (partial(below, mode=0o777 | stat.S_ISVTX), True),
    "where a link leads": (linked, False),
    "a link": (partial(of_kind, kind="link"), False),
    "a file": (partial(of_kind, kind="file"), False),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_is_ones_own_and_becomes_private(tmp_path, name):
    make, private = FOLDERS[name]
    assert kept_in(make(tmp_path)) == ("" if private else "config.local-directory")


@pytest.mark.parametrize("above", [False, True])
def test_a_folder_of_somebody_else_or_below_one_is_refused(tmp_path, monkeypatch, above):
    folder = tmp_path / "worker-1"
    folder.mkdir()
    real, other = process_surface.Path.stat, os.geteuid() + 1

    def owned_by_another(path: Any, **options: Any) -> Any:
        found = real(path, **options)
        if path != tmp_path:
            return found
        return SimpleNamespace(st_uid=other, st_mode=found.st_mode)

    if above:
        monkeypatch.setattr(process_surface.Path, "stat", owned_by_another)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: other)
    assert kept_in(folder) == "config.local-directory"
