"""Check the settings of one process, and the scheduler that it would reach.

The one rule: each check runs the code that a process of this role runs, not a copy of it; a check
that needs the result of one that failed is skipped, and names that one.
"""

from __future__ import annotations

import asyncio
import datetime
import os
import platform
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

import dask
from distributed.comm.addressing import parse_host_port
from distributed.comm.core import connect
from distributed.core import rpc, send_recv

from safeser.audit import AuditFiles
from safeser.channel import Channel
from safeser.confinement import probe
from safeser.dask import drift
from safeser.dask.client import check_address
from safeser.dask.roles import require_fit
from safeser.dask.security import Security
from safeser.dask.settings import Settings, channel_for, settings_for, unrecorded_channel
from safeser.dask.transport.listening import announced, bound_here
from safeser.dask.worker.confinement import demand_for, own_files
from safeser.errors import ConfigError, SafeserError
from safeser.identity import Identity, KeyState, Roster
from safeser.operations import Server
from safeser.policy import Policy

__all__ = ["Diagnosis", "Finding", "State", "ask_drift"]

State = Literal["fine", "wrong", "note", "skipped"]

_SCHEME = "safeser://"
_CLIENT = "client"
#: Dates in rosters and policies are days and times of day; a minute is more than clocks that
#: follow a time server differ.
_CLOCK_SECONDS = 60.0
#: Nothing is let through that cannot be recorded: a full disk stops the process.
_FREE_BYTES = 100 << 20
#: Processes that are listed by name.
_BOUND_SHOWN = 6
#: Workers whose addresses are checked.
_WORKERS = 50
_TEXT = 120

_PACKAGES = ("safeser", "distributed", "dask", "msgpack", "cloudpickle", "numpy", "pandas")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    :param check: what was checked, one or two words.
    :param what: what was found.
    :param fix: what to change, if it is wrong.
    """

    check: str
    state: State
    what: str
    fix: str = ""


def _failed(check: str, error: SafeserError) -> Finding:
    where = f" at {error.where}" if error.where else ""
    return Finding(check, "wrong", f"{error.message}{where} [{error.rule}]", error.fix)


class Diagnosis:
    """The checks of one process, in the order in which one needs the other.

    :param role: ``client``, ``worker``, ``nanny`` or ``scheduler``.
    :param overrides: settings over those of Dask's configuration, as ``Security`` takes them.
    :param address: of the scheduler; default: Dask's setting ``scheduler-address``.
    :param seconds: to connect, and again for each answer.
    """

    def __init__(
        self,
        role: str,
        overrides: Mapping[str, Any],
        *,
        address: str | None = None,
        seconds: float = 5.0,
    ) -> None:
        self._role = role
        self._security = Security(**overrides)
        self._overrides = self._security.overrides(role)
        configured = dask.config.get("scheduler-address", None)
        self._address = address or (configured if isinstance(configured, str) else None)
        self._seconds = seconds
        self._channel: Channel | None = None

    def findings(self) -> Iterator[Finding]:
        """Yield the result of each check as soon as it is known."""
        yield _installed()
        try:
            settings = settings_for(self._role, self._overrides)
        except SafeserError as error:
            yield _failed("settings", error)
            return
        yield from self._files(settings)
        yield self._log(settings)
        yield _log_heads(settings)
        yield from self._confined(settings)
        yield from self._bound_here()
        yield _address(self._address, self._role)
        yield from self._scheduler()

    # --- this process ----------------------------------------------------------------------------

    def _files(self, settings: Settings) -> Iterator[Finding]:
        lists = _roster(settings), _policy(settings), *_shadow(settings)
        files = (_key(settings, self._role), *lists)
        yield from files
        if any(each.state == "wrong" for each in files):
            yield Finding("principal", "skipped", "needs a key, a roster and a policy")
        else:
            yield self._principal()

    def _principal(self) -> Finding:
        """Check key, roster and policy together, as the process does before it opens its log."""
        try:
            channel = unrecorded_channel(self._role, self._overrides)
            assert channel is not None  # its key is set
            if self._role != _CLIENT:
                require_fit(Server(self._role), channel.policy, channel.identity.principal)
        except SafeserError as error:
            return _failed("principal", error)
        self._channel = channel
        name = channel.identity.principal
        peers = ", ".join(sorted(channel.policy.counterparts(name)))
        return Finding("principal", "fine", f"{name} as {self._role}; policy knows it with {peers}")

    def _log(self, settings: Settings) -> Finding:
        if self._channel is None:
            return Finding("log", "skipped", "needs a principal")
        try:
            self._channel = channel_for(self._role, self._overrides)
        except SafeserError as error:
            self._channel = None
            return _failed("log", error)
        folder = Path(settings.audit or "").expanduser()
        free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
        what = f"{folder} can be written, {free >> 20:,} MiB are free"
        if free < _FREE_BYTES:
            fix = "Free some space: nothing is let through that cannot be recorded."
            return Finding("log", "wrong", what, fix)
        return Finding("log", "fine", what)

    def _confined(self, settings: Settings) -> Iterator[Finding]:
        """Probe this very process, where policy demands that a worker of its principal is confined.

        An operator runs doctor as the worker is run: behind ``safeser confined --``.
        """
        if self._role != Server.WORKER.value or self._channel is None:
            return
        demand = demand_for(self._channel.policy, self._channel.identity.principal)
        if demand is None:
            return
        for each in probe(demand, own_files(settings, self._channel.policy)):
            state: State = "fine" if each.is_met else "wrong"
            yield Finding(f"confined: {each.probe}", state, each.found, each.fix)

    def _bound_here(self) -> Iterator[Finding]:
        if self._address is None or _address(self._address, self._role).state == "wrong":
            yield Finding("bound here", "skipped", "needs an address: it names the cluster")
            return
        found = bound_here(self._address)
        for command, places in found[:_BOUND_SHOWN]:
            yield Finding("bound here", "note", f"{command}: {', '.join(places)}")
        if more := found[_BOUND_SHOWN:]:
            yield Finding("bound here", "note", f"{len(more)} more processes")

    # --- the scheduler ---------------------------------------------------------------------------

    def _scheduler(self) -> Iterator[Finding]:
        reason = self._cannot_connect()
        if reason:
            yield Finding("scheduler", "skipped", reason)
            yield _clock(None)
            return
        assert self._address is not None
        assert self._channel is not None
        try:
            claims, answers = asyncio.run(self._ask(self._address))
        except (SafeserError, OSError) as error:
            yield self._unreachable(error)
            yield _clock(None)
            return
        peer = f"{claims.principal} answers at {self._address} and accepts this key"
        yield Finding("scheduler", "fine", peer)
        yield _other_policy(claims, self._channel.policy)
        yield from _compared(answers["versions"])
        identity = answers["identity"]
        yield _clock(identity)
        yield from _announced(identity, self._address)

    def _cannot_connect(self) -> str:
        if self._role == Server.SCHEDULER.value:
            return "a scheduler connects to none; ask as a worker or client"
        if self._address is None:
            return "needs an address"
        if _address(self._address, self._role).state == "wrong":
            return f"needs a {_SCHEME} address"
        return "" if self._channel is not None else "needs a principal and a log"

    async def _ask(self, address: str) -> tuple[Any, dict[str, Any]]:
        """Connect as a process of this role does, and ask the scheduler for its ``identity``."""
        location = address.removeprefix(_SCHEME)
        # Dask has no arguments for nannies, and tells workers of their scheduler by other ways.
        arguments = self._security.get_connection_args("worker")
        arguments["safeser"] |= {"role": self._role, "scheduler_at": location}
        comm = await connect(address, timeout=self._seconds, **arguments)
        try:
            answers = {
                "identity": await self._answer(comm, op="identity", n_workers=_WORKERS),
                "versions": await self._answer(comm, op="versions", packages=list(_PACKAGES)),
            }
            return comm.link.session.peer_claims, answers
        finally:
            await comm.close()

    async def _answer(self, comm: Any, **request: Any) -> Any:
        try:
            return await asyncio.wait_for(send_recv(comm, **request), self._seconds)
        except (SafeserError, TimeoutError) as error:
            return error

    def _unreachable(self, error: SafeserError | OSError) -> Finding:
        if isinstance(error, SafeserError):
            return _failed("scheduler", error)
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = (cause.strerror if isinstance(cause, OSError) else None) or self._tcp_says()
        return Finding(
            "scheduler",
            "wrong",
            f"{self._address} does not answer within {self._seconds:g} s: {reason}",
            "Check that the scheduler runs, that it was started with '--protocol safeser' and with"
            " '--host' of an address that this machine reaches, and that no firewall is between.",
        )

    def _tcp_says(self) -> str:
        """Return why nothing answers, where Dask's attempts ended with the time for them."""
        assert self._address is not None
        try:
            socket.create_connection(parse_host_port(self._address), self._seconds).close()
        except OSError as error:
            return error.strerror or type(error).__name__
        return "a process listens, and sends nothing"


# --- one file or setting each --------------------------------------------------------------------


def _installed() -> Finding:
    found = {"Python": platform.python_version(), **{n: _own_version(n) for n in _PACKAGES}}
    said = ", ".join(f"{name} {own}" for name, own in found.items() if own is not None)
    return Finding("installed", "fine", said)


def _log_heads(settings: Settings) -> Finding:
    """Say whether heads of the log go to a second place: without it a whole log can be replaced."""
    if settings.audit is None:
        return Finding("log heads", "skipped", "needs a log")
    files = settings.audit_files or AuditFiles()
    if not files.heads:
        return Finding("log heads", "note", "no head goes to a second place")
    # A place may be a command, whose arguments are not for a screen.
    places = ", ".join(place.split()[0] for place in files.heads)
    return Finding("log heads", "fine", f"they go to {places} every {files.heads_every:,} s")


def _key(settings: Settings, role: str) -> Finding:
    try:
        settings.require_identity(role)
        identity = Identity.load(settings.identity_path)
    except ConfigError as error:
        return _failed("key", error)
    signs = "" if identity.verifying else ", no signing key"
    return Finding("key", "fine", f"of {identity.principal}, {identity.public.fingerprint}{signs}")


def _roster(settings: Settings) -> Finding:
    if settings.roster is None and settings.identity is None:
        return Finding("roster", "skipped", "needs a key, beside which it lies")
    path = settings.roster_path
    if path is None:
        beside = settings.identity_path.with_name("roster")
        return Finding("roster", "note", f"none at {beside}: the policy lists all keys")
    try:
        entries = Roster.load(path).entries
    except ConfigError as error:
        return _failed("roster", error)
    active = sum(entry.state is KeyState.ACTIVE for entry in entries)
    newest = max((entry.created for entry in entries), default=datetime.date.min)
    today = datetime.datetime.now(datetime.UTC).date()
    if newest > today + datetime.timedelta(days=1):
        return Finding(
            "roster",
            "wrong",
            f"{path} lists a key of {newest}, and this machine's date is {today}",
            "Set this machine's clock, or correct the date in that line.",
        )
    return Finding("roster", "fine", f"{len(entries)} keys, {active} active, {path}")


def _policy(settings: Settings) -> Finding:
    try:
        policy = Policy.load(settings.policy or "default")
    except ConfigError as error:
        return _failed("policy", error)
    named = f"{policy.name} revision {policy.revision}"
    if policy.observes:
        what = "it refuses the floors, and code where no context sends any"
        return Finding("policy", "note", f"{named} only observes: {what}")
    return Finding("policy", "fine", named)


def _shadow(settings: Settings) -> Iterator[Finding]:
    if settings.shadow is None:
        return
    try:
        policy = Policy.load(settings.shadow)
    except ConfigError as error:
        yield _failed("shadow", error)
        return
    what = f"{policy.name} revision {policy.revision}, whose refusals are only recorded"
    yield Finding("shadow", "fine", what)


def _address(address: str | None, role: str) -> Finding:
    if address is None:
        if role == Server.SCHEDULER.value:
            return Finding("address", "skipped", "a scheduler needs none")
        return Finding(
            "address", "note", "no scheduler is named: give its address, or set scheduler-address"
        )
    try:
        check_address(address)
    except ConfigError as error:
        return _failed("address", error)
    return Finding("address", "fine", address)


# --- what the scheduler says of itself; none of its text is trusted to be short -------------------


def _other_policy(claims: Any, policy: Policy) -> Finding:
    theirs = f"{claims.policy} revision {claims.revision}"
    if claims.sha256 == policy.sha256:
        return Finding("policy there", "fine", f"the same, {theirs}")
    return Finding(
        "policy there", "note", f"another than here: {theirs}; the stricter of the two decides"
    )


def _compared(answer: Any) -> Iterator[Finding]:
    if isinstance(answer, BaseException):
        yield Finding("versions there", "note", f"not told: {_short(answer)}")
        return
    packages = answer.get("packages") if isinstance(answer, dict) else None
    theirs = packages if isinstance(packages, dict) else {}
    host = answer.get("host") if isinstance(answer, dict) else None
    python = str(host.get("python")) if isinstance(host, dict) else ""
    differing = []
    for name in _PACKAGES:
        said, mine = theirs.get(name), _own_version(name)
        if said is not None and mine is not None and str(said) != mine:
            differing.append(f"{name} {_short(said)}")
    if not python.startswith(f"{platform.python_version()}."):
        differing.insert(0, f"Python {_short(python)}")
    if not differing:
        yield Finding("versions there", "fine", "the same as here")
        return
    required = [each for each in differing if each.startswith(("safeser ", "distributed "))]
    fix = "Install the same versions of safeser and distributed on both ends." if required else ""
    state: State = "wrong" if required else "note"
    yield Finding("versions there", state, f"other than here: {', '.join(differing)}", fix)


def _own_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _clock(identity: Any) -> Finding:
    """Compare this machine's clock with the scheduler's, which is known by heartbeats of workers.

    Without a worker there is the time at which it started, before which it cannot be.
    """
    now = datetime.datetime.now(datetime.UTC)
    what = f"{now:%Y-%m-%d %H:%M:%S} UTC"
    if not isinstance(identity, dict):
        return Finding("clock", "note", f"{what}; not compared with the scheduler's")
    workers = identity.get("workers")
    seen = [
        each["last_seen"]
        for each in (workers.values() if isinstance(workers, dict) else ())
        if isinstance(each, dict) and type(each.get("last_seen")) is float
    ]
    started = identity.get("started")
    local = time.time()
    ahead = max(seen) - local if seen else None
    if ahead is None and type(started) is float and started > local:
        ahead = started - local
    if ahead is None:
        return Finding("clock", "fine", f"{what}; the scheduler started before it")
    if abs(ahead) <= _CLOCK_SECONDS:
        return Finding("clock", "fine", f"{what}; the scheduler's is the same")
    differs = "ahead" if ahead > 0 else "behind"
    return Finding(
        "clock",
        "wrong",
        f"{what}; the scheduler's is {abs(ahead):.0f} s {differs}",
        "Have both machines follow a time server: dates in rosters and policies go by it.",
    )


def _announced(identity: Any, address: str) -> Iterator[Finding]:
    if isinstance(identity, BaseException):
        yield Finding("bound there", "note", f"not told: {_short(identity)}")
        return
    if isinstance(identity, dict):
        for wrong, what, fix in announced(identity, address):
            yield Finding("bound there", "wrong" if wrong else "fine", what, fix)


def _short(said: Any) -> str:
    text = said.message if isinstance(said, SafeserError) else str(said) or type(said).__name__
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}..."


# --- which policy and roster each process of a cluster decides by --------------------------------


def ask_drift(address: str) -> list[drift.Statement]:
    """Return what the processes of the cluster at *address* say, the scheduler first.

    :raises ConfigError: if it is no address of safeser's, or does not answer.
    """
    check_address(address)
    channel_for(_CLIENT)  # what is wrong with the settings is said before anything connects
    security = Security().narrowed(["msgpack"], scheduler_at=address.removeprefix(_SCHEME))
    arguments = security.get_connection_args(_CLIENT)

    async def asked() -> list[drift.Statement]:
        async with rpc(address, connection_args=arguments, timeout=10) as scheduler:
            return await drift.ask(scheduler)

    try:
        return asyncio.run(asked())
    except OSError as error:
        raise ConfigError(
            f"the scheduler at {address} does not answer: {error}",
            rule="config.address",
            fix="Check the address, and that the scheduler runs.",
        ) from None
