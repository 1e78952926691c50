"""What Dask opens beside its comms: web servers, Jupyter and folders for spilled data.

The one rule: a client that could not connect over ``safeser://`` reaches no server of this process
in another way, unless the operator named that way in the policy; and nothing that another user of
this machine may write becomes code or data here.

A scheduler has bound its web server before Dask asks for the first comm, so it is bound anew when
the listener is made, before the event loop has answered anything that came in. Workers bind theirs
afterwards, and are confined as they do.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NoReturn

from tornado.web import RequestHandler

from safeser.dask.servers import served
from safeser.errors import ConfigError
from safeser.policy import Policy
from safeser.policy.source.faults import shown

__all__ = ["confine", "start_http_server"]

logger = logging.getLogger("safeser.dask")

LOOPBACK = "127.0.0.1"

#: Connections that wait to be accepted, as tornado has it.
_BACKLOG = 128

#: Modules of distributed whose pages only show something. ``distributed.http.scheduler.api`` is
#: not among them: it closes workers for any visitor.
_PAGES = (
    *("distributed.http.health", "distributed.http.prometheus", "distributed.http.routing"),
    *("distributed.http.scheduler.info", "distributed.http.scheduler.json"),
    *("distributed.http.scheduler.missing_bokeh", "distributed.http.scheduler.prometheus"),
    *("distributed.http.statics", "distributed.http.utils"),
    *("distributed.http.worker.prometheus", "tornado.web"),
)

#: Fetches pages from whatever host and port the path names, with whatever method it is asked by.
_PROXY = "distributed.http.proxy"


def confine(owner: Any, policy: Policy) -> None:
    """Close what the server *owner* has opened beside its comms; a web server may come later.

    :raises ConfigError: if an option opens what safeser does not allow.
    """
    if getattr(owner, "jupyter", False):
        raise ConfigError(
            "--jupyter lets any visitor of the dashboard run code in the scheduler",
            rule="config.jupyter",
            fix="Leave it out, and start Jupyter by itself, as a client of the cluster.",
        )
    _require_private(getattr(owner, "local_directory", None))
    if getattr(owner, "http_server", None) is not None:
        _confine_web_server(owner, policy)


# --- web servers ---------------------------------------------------------------------------------


def start_http_server(stock: Callable[..., None], owner: Any, *args: Any, **kwargs: Any) -> None:
    """Start the web server of *owner* as *stock* does, confined."""
    stock(*args, **kwargs)
    known = served(owner)
    if known is not None:
        _confine_web_server(owner, known.channel.policy)


def _confine_web_server(owner: Any, policy: Policy) -> None:
    """Have the web server that *owner* has started show pages only, and listen where policy says.

    Its metrics have safeser's decisions, where Dask has imported the package for its own.

    To be called in one turn of the event loop with what started it: nothing that came in was
    answered in between.
    """
    _check_routes(owner.http_application)
    if "prometheus_client" in sys.modules:
        from safeser.dask.monitoring import register  # noqa: PLC0415 - needs the package

        register()
    server = owner.http_server
    bound = [made.getsockname()[:2] for made in server._sockets.values()]
    if all(
        host == policy.dashboard or ip_address(host.partition("%")[0]).is_loopback
        for host, _ in bound
    ):
        return
    host = policy.dashboard or LOOPBACK
    server.stop()
    # Tornado stops a server once, and remembers what it had bound.
    server._stopped = False
    server._sockets.clear()
    for connection in list(server._connections):
        connection.stream.close()  # what came in before has no place here
    for port in dict.fromkeys(port for _, port in bound):
        _listen(server, host, port)
    rebound = [made.getsockname()[:2] for made in server._sockets.values()]
    server.address, server.port = rebound[0]
    logger.info("The dashboard listens at %s, not at %s", host, bound[0][0])


def _listen(server: Any, host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    reason = ""
    for candidate in (port, 0):  # any other, as Dask does, where the port is taken
        try:
            # Tornado's own function leaves a socket open where it fails.
            made = socket.create_server((host, candidate), family=family, backlog=_BACKLOG)
        except OSError as error:
            reason = str(error.strerror)
            continue
        made.setblocking(False)
        server.add_socket(made)
        return
    raise ConfigError(
        f"the dashboard cannot listen at {shown(host)}: {reason}",
        rule="config.dashboard",
        fix="Name an address of this machine under dashboard: in the policy.",
    )


def _check_routes(application: Any) -> None:
    """Refuse pages that do something, and take out the proxy."""
    for router in (application.default_router, application.wildcard_router):
        for rule in _rules(router):
            target = rule.target
            if not (isinstance(target, type) and issubclass(target, RequestHandler)):
                continue
            if target.__module__.startswith("jupyter") or any(
                base.__module__ == _PROXY for base in target.__mro__
            ):
                rule.target = _NotHere
            elif target is not _NotHere and not any(
                f"{target.__module__}.".startswith(f"{page}.") for page in _PAGES
            ):
                _refuse_page(target.__module__)


def _rules(router: Any) -> Iterator[Any]:
    for rule in router.rules:
        if hasattr(rule.target, "rules"):
            yield from _rules(rule.target)
        else:
            yield rule


class _NotHere(RequestHandler):  # type: ignore[misc]  # tornado's types are not read here
    """Answers in place of a page that does more than show something."""

    def prepare(self) -> None:
        self.send_error(404)


def _refuse_page(module: str) -> NoReturn:
    raise ConfigError(
        f"the web pages of {shown(module)} may change the cluster, and do not authenticate"
        " visitors",
        rule="config.http-routes",
        fix="Take it out of distributed.scheduler.http.routes and distributed.worker.http.routes.",
    )


# --- folders -------------------------------------------------------------------------------------


def _require_private(directory: str | None) -> None:
    """Make the folder where a worker spills data this user's alone, or refuse to use it.

    What is spilled is unpickled when it comes back.
    """
    if directory is None or not hasattr(os, "geteuid"):
        return
    path = Path(directory).absolute()
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        _refuse_directory(path, "is no folder of this user's")
    # By the open folder: a confined process may change no mode by a path.
    opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(opened, 0o700)
    finally:
        os.close(opened)
    # As spelt and as resolved: a user who may write to the folder of a link can change it.
    for parent in dict.fromkeys((*path.parents, *path.resolve().parents)):
        found = parent.stat()
        if found.st_uid not in (0, os.geteuid()):
            _refuse_directory(parent, "belongs to another user, who could replace it")
        if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            _refuse_directory(parent, f"is writable by others (mode {found.st_mode & 0o7777:04o})")


def _refuse_directory(path: Path, why: str) -> NoReturn:
    raise ConfigError(
        f"spilled data would not be safe in {path}: it {why}",
        rule="config.local-directory",
        fix="Name a folder of your own by --local-directory or temporary-directory.",
    )
