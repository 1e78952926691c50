"""What Dask opens beside its comms, without a cluster: servers, pages, preloads, folders."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import preloading
from distributed.http import health, proxy
from distributed.http.routing import RoutingApplication
from distributed.http.scheduler import api, info, json, missing_bokeh
from tornado.httpserver import HTTPServer
from tornado.web import RequestHandler

from safeser.dask.worker import process_surface
from safeser.errors import ConfigError
from safeser.operations import Server
from safeser.policy import Policy
from tests.dask.patched import patched, serve, with_rows

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
                serve(node, Server.WORKER, SimpleNamespace(policy=rules))
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


def test_an_address_that_this_machine_does_not_have_is_an_error():
    with pytest.raises(ConfigError) as caught:
        confined(Node(*routes(health)), policy("192.0.2.1"))
    assert caught.value.rule == "config.dashboard"


@pytest.mark.parametrize(
    "spelled", ["localhost", "192.0.2", "::g", "1", "127.0.0.1:8787", "[127.0.0.1]", " "]
)
def test_the_policy_names_an_address_and_nothing_else(spelled):
    with pytest.raises(ConfigError):
        policy(spelled)


def test_the_policy_may_name_none():
    assert policy().dashboard is None
    assert policy("::1").dashboard == "::1"


class Shell(RequestHandler):
    pass


@pytest.mark.parametrize("pages", [routes(api), [("/shell", Shell)]])
def test_pages_that_do_something_are_refused(pages):
    with pytest.raises(ConfigError) as caught:
        confined(Node(*routes(health), *pages), policy())
    assert caught.value.rule == "config.http-routes"


def test_the_pages_that_dask_serves_by_default_stay():
    shown = Node(
        *(route for module in (health, info, json, missing_bokeh) for route in routes(module))
    )
    assert confined(shown, policy())


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


@pytest.mark.parametrize("url", ["http://192.0.2.1/p.py", "https://192.0.2.1/p.py"])
def test_preloads_from_the_web_are_refused(url):
    with (
        patched("distributed.preloading:_download_module"),
        pytest.raises(ConfigError) as caught,
    ):
        preloading.Preload(SimpleNamespace(), url, [], None)
    assert caught.value.rule == "config.preload"
    assert "192.0.2.1" not in str(caught.value)
    for owner in (
        SimpleNamespace(preloads=[SimpleNamespace(name="os"), SimpleNamespace(name=url)]),
        SimpleNamespace(preload=url),
        SimpleNamespace(preload=["os", url]),
    ):
        with pytest.raises(ConfigError) as caught:
            process_surface.confine(owner, policy())
        assert caught.value.rule == "config.preload"
    process_surface.confine(
        SimpleNamespace(preloads=[SimpleNamespace(name="os")], preload=None), policy()
    )


def test_jupyter_is_refused():
    with pytest.raises(ConfigError) as caught:
        process_surface.confine(SimpleNamespace(jupyter=True), policy())
    assert caught.value.rule == "config.jupyter"


def test_a_folder_of_ones_own_becomes_private(tmp_path):
    folder = tmp_path / "dask-scratch-space" / "worker-1"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    process_surface.confine(SimpleNamespace(local_directory=str(folder)), policy())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o757])
def test_a_folder_that_others_could_replace_is_refused(tmp_path, mode):
    above = tmp_path / "space"
    folder = above / "worker-1"
    folder.mkdir(parents=True)
    above.chmod(mode)
    owner = SimpleNamespace(local_directory=str(folder))
    with pytest.raises(ConfigError) as caught:
        process_surface.confine(owner, policy())
    assert caught.value.rule == "config.local-directory"
    above.chmod(mode | stat.S_ISVTX)  # as /tmp: only its owner renames a folder there
    process_surface.confine(owner, policy())


def test_a_folder_behind_a_link_lies_where_the_link_leads(tmp_path):
    open_to_all, own = tmp_path / "open", tmp_path / "own"
    folder = open_to_all / "below" / "worker-1"
    folder.mkdir(parents=True)
    own.mkdir()
    (own / "link").symlink_to(folder.parent)
    open_to_all.chmod(0o777)  # others may put another "below" there
    with pytest.raises(ConfigError) as caught:
        process_surface.confine(
            SimpleNamespace(local_directory=str(own / "link" / "worker-1")), policy()
        )
    assert caught.value.rule == "config.local-directory"


def test_a_link_is_no_folder(tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "file").touch()
    for name in ("link", "file"):
        with pytest.raises(ConfigError) as caught:
            process_surface.confine(SimpleNamespace(local_directory=str(tmp_path / name)), policy())
        assert caught.value.rule == "config.local-directory"


def test_a_folder_of_somebody_else_is_refused(tmp_path, monkeypatch):
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(ConfigError) as caught:
        process_surface.confine(SimpleNamespace(local_directory=str(tmp_path)), policy())
    assert "no folder of this user's" in str(caught.value)


def test_what_lies_below_a_folder_of_somebody_else_is_refused(tmp_path, monkeypatch):
    folder = tmp_path / "worker-1"
    folder.mkdir()
    other = os.geteuid() + 1
    real = process_surface.Path.stat

    def owned_by_another(path: Any, **options: Any) -> Any:
        found = real(path, **options)
        return SimpleNamespace(st_uid=other, st_mode=found.st_mode) if path == tmp_path else found

    monkeypatch.setattr(process_surface.Path, "stat", owned_by_another)
    monkeypatch.setattr(process_surface.os, "geteuid", os.geteuid)
    with pytest.raises(ConfigError) as caught:
        process_surface.confine(SimpleNamespace(local_directory=str(folder)), policy())
    assert "belongs to another user" in str(caught.value)
