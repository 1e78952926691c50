"""``safeser.Client``: Dask's client, for which ``deserializers=['dask', 'msgpack']`` is true.

The one rule: it narrows. What policy allows this principal is the upper bound; arguments here take
away from it, and no argument widens it.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
from collections.abc import Sequence
from functools import partial
from numbers import Integral
from typing import TYPE_CHECKING, Any
from weakref import ref

import dask
from dask._expr import LLGExpr
from dask.core import validate_key
from distributed import Client as _DaskClient
from distributed.comm.addressing import parse_host_port
from distributed.diagnostics.plugin import SchedulerUploadFile
from distributed.security import Security as DaskSecurity

from safeser import operations
from safeser.channel import Channel
from safeser.dask.clients.gathering import Gathering
from safeser.dask.clients.replay import Replay
from safeser.dask.clients.sealing import Sealing, grant_of
from safeser.dask.clients.unsendable import Blamed, blaming, graph_parts
from safeser.dask.cluster import LocalCluster, require_processes
from safeser.dask.display import Display
from safeser.dask.sealed.form import key_form
from safeser.dask.security import Security, checked_families, require_listed
from safeser.dask.settings import channel_for
from safeser.dask.stock.client import GuardedSecurity, guard, guarded_scheme
from safeser.dask.stock.comm import Guard
from safeser.dask.transport.comm import SafeserComm
from safeser.errors import AuthenticationError, ConfigError, SafeserError
from safeser.gate.decision import SUBMIT
from safeser.gate.values import UNKNOWN, Context, Kind
from safeser.policy.source.faults import did_you_mean, shown
from safeser.policy.taken_tasks import anywhere
from safeser.sendable.parts import its_function
from safeser.sendable.preflight import Preflight, preflight
from safeser.tracebacks import methods_for_callers

if TYPE_CHECKING:
    from safeser.trace.tracing import Remote

__all__ = ["Client", "check_address"]

logger = logging.getLogger("safeser.dask")

_SCHEME = "safeser://"
#: Seconds between two attempts to connect again after the session was ended for a reason.
_PAUSE = 1.0
_TRY_AGAIN = "Ask the operator for an active key, and submit the work again."
#: ``cancel``, ``Variable.delete`` and ``Queue.close``.
_UNANSWERED = frozenset({"cancel-keys", "variable_delete", "queue_release"})


#: What users call that raises what was refused, beside what goes by ``sync``.
_METHODS = (
    *("submit", "map", "gather", "compute", "persist", "get", "scatter", "cancel", "retry"),
    *("run", "run_on_scheduler", "publish_dataset", "get_dataset", "upload_file"),
    *("register_plugin", "preflight", "sync", "__init__"),
)


@methods_for_callers(*_METHODS)
class Client(Display, Gathering, Blamed, Sealing, _DaskClient):  # type: ignore[misc]  # distributed ships no types
    """Connect to a cluster on ``safeser://``, or start one when no address is given.

    ``tcp://`` and ``tls://`` name a cluster that runs no safeser: the same is decided about all
    that comes from there, and only dask and msgpack ever pass.

    :param address: ``safeser://host:port``, a :class:`safeser.dask.cluster.LocalCluster`, or None
        to start a local cluster of processes with identities made for it and the default policy; or
        ``tcp://host:port`` or ``tls://host:port`` of a cluster without safeser.
    :param security: a :class:`safeser.Security`; default: Dask's configuration. For ``tls://`` a
        :class:`distributed.Security` will do.
    :param policy: with no address, the policy of the new cluster (a path or a ready policy's name).
    :param serializers: families to send with; narrows what policy allows.
    :param deserializers: families to open; narrows what policy allows, on every path into this
        process: replies, streams, errors and events.
    :raises ConfigError: before anything is started, if an argument would go around safeser.
    :raises AuthenticationError: at once, if the cluster and this process do not accept each other.
    """

    #: Why the session with the scheduler was ended, while there is no other one.
    _ended_because = ""

    def __init__(
        self,
        address: Any = None,
        *args: Any,
        security: DaskSecurity | None = None,
        policy: str | None = None,
        serializers: Sequence[str] | None = None,
        deserializers: Sequence[str] | None = None,
        processes: bool = True,
        **kwargs: Any,
    ) -> None:
        require_processes(processes)
        # Refused before a cluster is started.
        known = _CLIENT_OPTIONS.union(_CLUSTER_OPTIONS)
        for name in sorted(set(kwargs) - known):
            raise ConfigError(
                f"safeser.Client takes no argument {shown(name)}",
                rule="config.client",
                fix=did_you_mean(name, known),
            )
        serializers = checked_families(serializers, argument="serializers")
        deserializers = checked_families(deserializers, argument="deserializers")
        self._was_connected = False
        owned = None
        guarded = guarded_scheme(address)
        if security is not None and not isinstance(security, DaskSecurity if guarded else Security):
            raise ConfigError(
                "security must be a safeser.Security", fix="It carries the identity's path."
            )
        if address is None:
            address = _configured_address(kwargs.pop("scheduler_file", None))
        if address is None:
            asynchronous = bool(kwargs.get("asynchronous"))
            options = {k: kwargs.pop(k) for k in tuple(kwargs) if k in _CLUSTER_OPTIONS}
            _check_counts(options)
            address = owned = LocalCluster(policy=policy, asynchronous=asynchronous, **options)
        else:
            _refuse_cluster_options(policy, kwargs)
            check_address(address, schemes=(guarded,) if guarded else ())
        try:
            # Everything that can be wrong with keys and policy is said here, in one line, before
            # Dask starts to connect.
            if guarded:
                chosen = guard(guarded, security, deserializers)
                deserializers = chosen.guard.deserializers
            else:
                chosen = _own_security(security, address, deserializers)
                channel = channel_for("client", chosen.overrides("client"))
                require_listed(channel, serializers, argument="serializers")
                require_listed(channel, deserializers, argument="deserializers")
            super().__init__(
                address,
                *args,
                security=chosen,
                serializers=list(serializers) if serializers is not None else None,
                deserializers=list(deserializers) if deserializers is not None else None,
                **kwargs,
            )
        except BaseException:
            if owned is not None:
                owned.close()
            raise
        self._owned = owned
        Replay(self)  # in place of Dask's own

    #: A process, and the channel that this client has in it.
    _own_channel: tuple[int, Channel] | None = None

    @property
    def _guard(self) -> Guard | None:
        """The guard of a client on ``tcp://`` or ``tls://``, or None on ``safeser://``."""
        return self.security.guard if isinstance(self.security, GuardedSecurity) else None

    @property
    def safeser(self) -> Channel | Guard:
        """This process's side of the door: policy, log, and its identity or name in the policy."""
        if self._guard is not None:
            return self._guard
        # A forked process has another channel; to look for the settings takes longer than the rest.
        if self._own_channel is None or self._own_channel[0] != os.getpid():
            found = channel_for("client", self.security.overrides("client"))
            self._own_channel = os.getpid(), found
        return self._own_channel[1]

    def _graph_to_futures(self, expr: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        self._require_session()
        self._check_submission()
        for key in keys:
            validate_key(key)
            key_form(key)
        if type(expr) is dict:
            # recreate_error_locally asks for dependencies by an empty graph in this form, which
            # Dask's own scheduler fails on.
            expr = LLGExpr(expr)
        with blaming("what was submitted", partial(graph_parts, expr)):
            sent = self._as_sent(expr, actors=kwargs.get("actors"))
            return super()._graph_to_futures(sent, keys, *args, **kwargs)

    def map(self, func: Any, *iterables: Any, **kwargs: Any) -> Any:
        # It makes a token of the function before there is a graph.
        named = ((f"argument '{name}'", value) for name, value in kwargs.items())
        with blaming("what was submitted", lambda: [(its_function(func), func), *named]):
            return super().map(func, *iterables, **kwargs)

    async def _scatter(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        with blaming("what was scattered", lambda: [("", data)]):
            return await super()._scatter(data, *args, **kwargs)

    def submission_context(self) -> Context:
        """Return the context in which this client submits to its scheduler."""
        link = self._policy_link()
        if link is None:
            raise ConfigError(
                "this client is not connected to a scheduler on safeser://",
                rule="sendable.client",
                fix="Pass context= and policy= instead.",
            )
        return link.outbound(Kind.TASK, SUBMIT)

    def preflight(self, obj: Any, context: Context | None = None) -> Preflight:
        """Return whether *obj* can be submitted, as :func:`safeser.preflight` says it."""
        return preflight(obj, context, self)

    def serialization_counts(self, scheduler: bool = True, workers: bool = True) -> Remote:
        """Return what :func:`safeser.trace_serialization` asks for the counts of the cluster."""
        # Only a client that is traced needs it.
        from safeser.dask.clients.remote_counts import RemoteCounts  # noqa: PLC0415 - as above

        return RemoteCounts(self.scheduler, scheduler=scheduler, workers=workers)

    async def _register_scheduler_plugin(self, plugin: Any, *args: Any, **kwargs: Any) -> Any:
        """Register *plugin*; a scheduler that opens no graphs needs no files that they import."""
        if self.seals and isinstance(plugin, SchedulerUploadFile):
            return None
        return await super()._register_scheduler_plugin(plugin, *args, **kwargs)

    async def _start(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super()._start(*args, **kwargs)
        except SafeserError:
            await self._close()  # Dask closes after its own errors alone
            raise
        self._was_connected = True

    async def _ensure_connected(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super()._ensure_connected(*args, **kwargs)
        except SafeserError as error:
            if not self._was_connected:
                raise
            if self._ended_because:
                # Who was told why need not ask ten times a second whether that has changed.
                await asyncio.sleep(_PAUSE)
            # Dask tries again after an OSError until its time is out, and then closes the client.
            # Any other error would end the loop that reports futures, which would wait for ever: an
            # attacker that cut the connection and answered once as the scheduler could do that.
            raise OSError(f"the scheduler cannot be reached again: {error}") from None
        stream = getattr(self.scheduler_comm, "comm", None)
        if isinstance(stream, SafeserComm):
            stream.stream_of = ref(self)
            self._ended_because = ""

    async def _reconnect(self) -> None:
        """Connect again as Dask does; futures say why the session ended, where that is known."""
        self._ended_because = getattr(self.scheduler_comm.comm, "ended_because", "")
        if self._ended_because:
            for state in self.futures.values():
                state.cancel(reason="session-ended", msg=f"{self._ended_because}. {_TRY_AGAIN}")
            self.futures.clear()
        # Without Dask's decorator, which logs that the client was closed meanwhile as an error.
        stock = _DaskClient._reconnect
        await getattr(stock, "__wrapped__", stock)(self)

    async def _update_scheduler_info(self, *args: Any, **kwargs: Any) -> None:
        """Ask the scheduler about itself, as Dask does every few seconds.

        Where it refuses meanwhile, what the client does says why; Dask would print a traceback each
        time.
        """
        try:
            await super()._update_scheduler_info(*args, **kwargs)
        except SafeserError as error:
            if self.status != "running" and not self._ended_because:
                raise
            logger.debug("The scheduler reports nothing about itself: %s", error)

    def _require_session(self) -> None:
        """Refuse to submit where the session was ended and no other one has begun."""
        if self._ended_because:
            raise AuthenticationError(
                f"there is no session with the scheduler: {self._ended_because}",
                rule="session.ended",
                fix=_TRY_AGAIN,
            )

    def _get_computation_code(self, *args: Any, **kwargs: Any) -> Any:
        """Return the source that Dask shows on its dashboard; where only names may pass, none."""
        link = self._policy_link()
        if link is not None and grant_of(link).submission != "code":
            return ()
        return super()._get_computation_code(*args, **kwargs)

    def _check_submission(self) -> None:
        """Refuse a graph where it is submitted, and not later through its futures."""
        channel = self.safeser
        if isinstance(channel, Guard):
            return  # a user who names such an address means to send it work
        if _asks(channel, Kind.TASK, "update-graph"):
            return
        context = Context(channel.identity.principal, UNKNOWN, Kind.TASK, "update-graph")
        channel.refuse_submission(context)

    def _send_to_scheduler(self, msg: Any) -> None:
        """Refuse here an operation that the scheduler never answers: Dask takes it for done."""
        if msg["op"] in _UNANSWERED:
            self._permit(operations.Channel.STREAM, msg["op"])
        super()._send_to_scheduler(msg)

    async def _shutdown(self) -> None:
        """Refuse it before Dask has begun to close this client, which could do little then."""
        if not self.cluster:
            self._permit(operations.Channel.RPC, "terminate")
        await super()._shutdown()

    def _permit(self, channel: operations.Channel, name: str) -> None:
        link = self._policy_link()
        row = operations.lookup(operations.Server.SCHEDULER, channel, name)
        if link is not None and row is not None:
            link.permit_operation(link.outbound(row.kind, row.name))

    def _may_feed(self) -> bool:
        """Tell whether a scheduler that this client may meet would run functions for it."""
        channel = self.safeser
        return isinstance(channel, Guard) or _asks(channel, Kind.CONTROL, "feed")

    async def _close(self, *args: Any, **kwargs: Any) -> None:
        await super()._close(*args, **kwargs)
        owned, self._owned = getattr(self, "_owned", None), None
        if owned is not None:
            result = owned.close()
            if result is not None and hasattr(result, "__await__"):
                await result


def _own_security(security: Any, address: Any, deserializers: tuple[str, ...] | None) -> Security:
    """Return the security of a client on ``safeser://``, checked."""
    offered = getattr(address, "security", None)
    # A cluster that was started with Dask's settings alone has a Security of Dask's, which names
    # no identity.
    if not isinstance(offered, Security) and _location(address) is not None:
        offered = None
    chosen = security or offered or Security()
    if not isinstance(chosen, Security):
        raise ConfigError(
            "this cluster does not run on safeser://",
            rule="config.scheme",
            fix="Start it with protocol='safeser://'. One that is not started yet has no address:"
            " await it first.",
        )
    return chosen.narrowed(deserializers, scheduler_at=_location(address))


def _asks(channel: Channel, kind: Kind, operation: str) -> bool:
    """Tell whether policy lets this process ask any principal for *operation*."""
    own, policy = channel.identity.principal, channel.policy
    asked = ("asks", own, kind, operation)
    found: bool | None = policy.remembered.get(asked)
    if found is None:
        found = policy.remembered[asked] = any(
            policy.permits_operation(context).permitted
            for peer in sorted(policy.counterparts(own))
            for context in anywhere(own, peer, operation, kind)
        )
    return found


def _configured_address(scheduler_file: str | None) -> str | None:
    """Return the address that a scheduler file or Dask's configuration names, or None.

    Stock Dask looks there too, and would connect by whatever scheme it finds.
    """
    if scheduler_file is None:
        configured = dask.config.get("scheduler-address", None)
        return configured if isinstance(configured, str) else None
    try:
        with open(scheduler_file, encoding="utf-8") as file:
            address = json.loads(file.read(_SCHEDULER_FILE))["address"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"the scheduler file {scheduler_file} cannot be read ({type(error).__name__})",
            rule="config.scheduler-file",
            fix="Start the scheduler with --scheduler-file first, or name its address.",
        ) from None
    return str(address)


#: More than any scheduler writes into its file, bytes.
_SCHEDULER_FILE = 1 << 20

_CLIENT_OPTIONS = frozenset(inspect.signature(_DaskClient.__init__).parameters) - {"self", "kwargs"}
#: What distributed's own client hands on to a cluster that it starts, and its workers.
_CLUSTER_OPTIONS = frozenset(
    (
        *("n_workers", "threads_per_worker", "scheduler_port", "host", "interface"),
        *("dashboard_address", "worker_dashboard_address", "silence_logs", "memory_limit"),
        *("local_directory", "resources", "env", "preload", "preload_argv", "preload_nanny"),
        *("preload_nanny_argv", "death_timeout", "lifetime", "lifetime_stagger"),
        *("lifetime_restart", "directory"),
    )
)


def _location(address: Any) -> str | None:
    """Return ``host:port`` of a scheduler by its address or its cluster, if that has begun."""
    named = address if isinstance(address, str) else getattr(address, "scheduler_address", "")
    return named.removeprefix(_SCHEME) if str(named).startswith(_SCHEME) else None


def _check_counts(options: dict[str, Any]) -> None:
    """Refuse what is no number of workers or threads; Dask starts before it notices."""
    for name, least in (("n_workers", 0), ("threads_per_worker", 1)):
        value = options.get(name)
        if value is not None and (type(value) is bool or not isinstance(value, Integral)):
            problem = f"a {type(value).__name__}"
        elif value is not None and value < least:
            problem = "too few"
        else:
            continue
        raise ConfigError(
            f"{name}= is {problem}, and must be a whole number, {least} or more",
            rule="config.client",
            fix="Leave it out for as many as this machine's processors allow.",
        )


def _refuse_cluster_options(policy: str | None, arguments: dict[str, Any]) -> None:
    if policy is not None:
        raise ConfigError(
            "policy= is for a new local cluster; this process's policy for an existing one"
            " comes from safeser.Security(policy=...) or DASK_SAFESER__POLICY",
            rule="config.policy",
        )
    for name in sorted(arguments):
        if name in _CLUSTER_OPTIONS:
            raise ConfigError(
                f"{name}= is for a new local cluster, and an address names one that runs",
                rule="config.client",
                fix="Leave out one of the two.",
            )


def check_address(address: Any, *, schemes: Sequence[str] = ()) -> None:
    """Refuse an address that this client would never reach; Dask tries for ever, or by TCP.

    :param schemes: those that may stand there beside ``safeser``.
    """
    if isinstance(address, int | float | bytes):
        raise ConfigError(
            f"the first argument is an address or a cluster, not a {type(address).__name__}",
            rule="config.address",
            fix="For a local cluster of so many workers, write n_workers=.",
        )
    if not isinstance(address, str):
        return
    scheme, separator, location = address.partition("://")
    if not separator:
        raise ConfigError(
            "the address names no scheme, and Dask's default is plain TCP",
            rule="config.scheme",
            fix=f"Write {_SCHEME} before it, as in safeser://127.0.0.1:8786.",
        )
    if address != f"{_SCHEME}{location}" and scheme not in schemes:
        raise ConfigError(
            f"safeser.Client connects to {_SCHEME} addresses, not to {shown(scheme)}",
            rule="config.scheme",
            fix="Start the scheduler with: dask scheduler --protocol safeser. For a cluster"
            " without safeser, write its tcp:// or tls:// address in the call.",
        )
    try:
        host, port = parse_host_port(location)
    except ValueError:
        host, port = "", 0
    if not host or not 0 < port < 1 << 16:
        raise ConfigError(
            f"{shown(address)} names no host and port",
            rule="config.address",
            fix="Write both, as in safeser://127.0.0.1:8786; a scheduler takes 8786 by default.",
        )
