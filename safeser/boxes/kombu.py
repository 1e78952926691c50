"""Seal the messages of kombu and the tasks and results of Celery.

The one rule: a worker runs a task, and stores a result, only as the sender sealed the task. kombu
hands a serializer the body alone, and Celery sends the name, id and times of a task beside it, in
headers that each writer to the broker can change. So :func:`install` seals these headers with the
arguments, and :class:`SealedConsumer` takes them from there alone.

What stays with those who can write to the broker: to drop, delay and reorder messages, to have one
delivered twice where no ``once`` is kept, and to end workers by data that kombu cannot parse.
"""

from __future__ import annotations

import builtins
import logging
import time
from collections.abc import Callable, Iterable
from types import NoneType
from typing import Any, NamedTuple

import celery
import celery.exceptions
from celery import signals, states
from celery.app.task import Context
from celery.backends.redis import RedisBackend
from celery.exceptions import Ignore
from celery.utils.time import maybe_iso8601
from celery.worker.consumer import Consumer
from celery.worker.request import Request
from kombu import compression, serialization
from kombu.exceptions import DecodeError

from safeser.channel.box import Box, Opened
from safeser.errors import ConfigError, EnvelopeError, PayloadError, SafeserError
from safeser.families.errors.failures import RemoteError
from safeser.gate.detached import Facts
from safeser.once import Once

__all__ = [
    "SealedConsumer",
    "SealedRedis",
    "SealedRequest",
    "SealedTask",
    "install",
    "register",
]

logger = logging.getLogger("safeser.boxes")

#: Under what a request has the message that its arguments came in; of headers, it is no Opened.
_KEY = "safeser"
#: What else a request takes of a sealed body. It takes each, or a header would count in its place.
_EMBEDDED = ("callbacks", "errbacks", "chain")
#: The headers that a task has, and the types that Celery computes with; each may be None too.
_HEADERS = {
    **dict.fromkeys(("task", "id", "root_id", "parent_id", "group", "shadow"), str),
    **dict.fromkeys(("eta", "expires", "argsrepr", "kwargsrepr", "origin"), str),
    **dict.fromkeys(("group_index", "retries", "replaced_task_nesting"), int),
    "timelimit": list,
    "ignore_result": bool,
}
#: What a result's failure is raised as, with the arguments in it: these end no process.
_ERRORS = tuple(
    each
    for module in (builtins, celery.exceptions)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Exception)
)
Context.safeser = None  # or Celery passes it on as a header of what the task sends


class Installed(NamedTuple):
    """What an app has of :func:`install`."""

    once: Once | None
    ttl: float
    about: str
    settings: dict[str, Any]
    errors: dict[str, type[Exception]]


def register(
    box: Box,
    name: str,
    *,
    about: str,
    to: str | None = None,
    ttl: float | None,
    opened: Callable[[Opened], Any] = lambda message: message.value,
) -> str:
    """Register *box* with kombu as the serializer *name*; return its content type.

    Consumers name that in ``accept=[...]``, and no other, or other serializers are decoded too.

    :param about: what messages are about. They open about nothing else.
    :param to: the principal that opens them; None for a shared box.
    :param ttl: seconds until a message opens no more; None for no end.
    :param opened: returns what the consumer gets of an opened message.
    """
    content_type = f"application/x-{name}"
    serialization.register(
        name,
        lambda obj: box.seal(_plain(obj), to=to, about=about, ttl=ttl),
        lambda data: opened(box.open(bytes(data), about=about)),
        content_type=content_type,
        content_encoding="binary",
    )
    return content_type


def install(
    app: celery.Celery,
    box: Box,
    *,
    tasks: str | None = None,
    results: str | None = None,
    ttl: float = 86_400,
    once: Once | None = None,
    errors: Iterable[type[Exception]] = (),
) -> None:
    """Have *app* send tasks and results sealed, and run and read no others.

    Call it in each process that makes the app, after the app's own settings and before tasks are
    defined. Results go to Redis, or nowhere. It turns off remote control, which is not sealed, and
    in the whole process kombu's decompression, which comes before the check of any seal.

    :param tasks: the principal of the workers; None for a shared box.
    :param results: the principal of those who wait for results; None for a shared box.
    :param ttl: seconds until a task runs no more, and a result is read no more.
    :param once: a worker's store, by which it runs no message twice.
    :param errors: the program's own classes that a failed task may raise where its result is read,
        with arguments of the worker's choice. Those of Python and Celery may.
    :raises ConfigError: if tasks are defined already, results do not go to Redis, or the process
        has another sealed app of this name.
    """
    if app.finalized or "Task" in vars(app):
        raise ConfigError(
            "the app has tasks that are not sealed",
            rule="box.celery",
            fix="Call safeser.boxes.kombu.install before the first task is defined.",
        )
    name = app.main or "celery"
    called, back = f"safeser-{name}-tasks", f"safeser-{name}-results"
    # kombu's registry is of the process: a second app would have the first seal with its key.
    if called in serialization.registry.name_to_type:
        raise ConfigError(
            f"the process has an app {name} that is sealed",
            rule="box.celery",
            fix="Give each app a name of its own, and call install once for each.",
        )
    about = f"{name} tasks"
    settings = {
        "task_protocol": 2,
        "task_serializer": called,
        "accept_content": [
            register(box, called, about=about, to=tasks, ttl=ttl, opened=_arguments)
        ],
        "result_serializer": back,
        "result_accept_content": [
            register(box, back, about=f"{name} results", to=results, ttl=ttl)
        ],
        "worker_enable_remote_control": False,
        "worker_consumer": f"{__name__}:SealedConsumer",
        "task_compression": None,
        "result_compression": None,
        "result_backend": _sealed_backend(app.conf.result_backend),
    }
    for method in compression.encoders():
        compression.register(compression.get_encoder(method)[0], _decompress, method)
    app.task_cls = SealedTask
    app.conf.update(settings)
    named = {_class_name(each.__module__, each.__qualname__): each for each in (*_ERRORS, *errors)}
    app.safeser = Installed(once, ttl, about, settings, named)
    signals.before_task_publish.connect(_name_task, dispatch_uid=__name__)
    signals.celeryd_after_setup.connect(_check_tasks, dispatch_uid=__name__)


def _sealed_backend(url: str | None) -> str | None:
    if url in (None, "disabled"):
        return None
    if url.startswith(("redis://", "rediss://", "redis+socket://")):
        return f"{__name__}.SealedRedis+{url.removeprefix('redis+')}"
    raise ConfigError(
        "results that are sealed go to Redis",
        rule="box.celery",
        fix="Set result_backend to redis://..., or to None.",
    )


def _name_task(body: Any, headers: dict[str, Any], **_: Any) -> None:
    """Add to the body of a task the headers that it is about to be sent with."""
    body[2][_KEY] = {name: headers.get(name) for name in _HEADERS}


def _decompress(_: bytes) -> bytes:
    """Refuse: some hundred bytes of a stranger would become gigabytes."""
    raise EnvelopeError("a message is compressed", rule="box.task", fix="Send it uncompressed.")


def _plain(value: Any) -> Any:
    """Return *value* with dictionaries in place of Celery's signatures, which derive from them."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def _arguments(message: Opened) -> tuple[Any, Any, dict[str, Any]]:
    """Return the body of a task; its request gets the message in which it came."""
    body = message.value
    if type(body) is not tuple or len(body) != 3 or type(body[2]) is not dict:
        raise PayloadError(
            "a message has no arguments of a task",
            rule="box.task",
            fix="Send it by an app that safeser.boxes.kombu.install was called for.",
        )
    taken = {name: body[2].get(name) for name in _EMBEDDED}
    return body[0], body[1], {**taken, "chord": None, _KEY: message}


def _headers(message: Any, name: Any, task_id: Any) -> dict[str, Any]:
    """Return the sealed headers of *message*, which is asked to be the task *name*, *task_id*."""
    sealed: Any = message.value[2].get(_KEY) if type(message) is Opened else None
    fits = (
        type(sealed) is dict
        and sealed.keys() == _HEADERS.keys()
        and all(type(sealed[each]) in (cls, NoneType) for each, cls in _HEADERS.items())
        and len(limits := sealed["timelimit"] or (None, None)) == 2
        and all(each is None or type(each) in (int, float) for each in limits)
        and all(0 <= each < 1 << 31 for each in limits if each is not None)
    )
    if not fits or type(task_id) is not str or [sealed["task"], sealed["id"]] != [name, task_id]:
        raise EnvelopeError(
            f"a message asks for the task {str(name)[:100]!r}, which it was not sealed for",
            rule="box.task",
        )
    return sealed  # type: ignore[no-any-return]  # a dict, as fits says


#: What each result of a task says as text.
_RESULT = ("task_id", "status")


class SealedConsumer(Consumer):  # type: ignore[misc]  # as below
    """What a worker does with a message: it refuses one without a seal, and stores nothing of it.

    Celery stores a failure for a task that a worker does not have, under the id of a header.
    """

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Any:
        """Return what takes a message, and gives Celery one with sealed headers alone."""
        handle = super().create_task_handler(*args, **kwargs)

        def take(message: Any) -> None:
            try:
                asked = message.headers
                # kombu decodes other types by the message's content_encoding, such as bz2.
                sealed = message.content_type in self.app.conf.accept_content
                opened = message.payload[2][_KEY] if sealed else None
                message.headers = _headers(opened, asked.get("task"), asked.get("id"))
            except Exception as error:  # no type of a header ends the worker
                self.on_invalid_task(None, message, error)
            else:
                handle(message)

        return take

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Log why *message* is refused, and drop it."""
        logger.error("a message is refused: %s", exc)
        message.reject_log_error(logger, self.connection_errors)

    on_unknown_task = on_invalid_task

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Drop *message*, which does not open or is compressed."""
        self.on_invalid_task(None, message, exc)


class SealedRequest(Request):  # type: ignore[misc]  # as below
    """A task that a worker has yet to run."""

    def maybe_expire(self) -> bool:
        """Return False: the task itself refuses when it has expired, and stores nothing.

        Or a message that is delivered again late would store that a task was revoked which ran.
        """
        return False


class SealedTask(celery.Task):  # type: ignore[misc]  # Celery ships no types
    """The base of all tasks of an app that :func:`install` was called for.

    ``self.request.safeser.sender`` is the principal that sealed the task.
    """

    abstract = True
    Request = SealedRequest

    def before_start(self, task_id: str, args: Any, kwargs: Any) -> None:
        """Refuse to run as anything but what was sealed.

        :raises Ignore: Celery drops the message, stores no result and calls no errbacks: all of
            these would be in the worker's name, for the writer of the headers.
        """
        if self.request.is_eager:  # called in this process; a message never says so
            return
        try:
            message = self.request.safeser
            self._take(message, _headers(message, self.name, task_id)["expires"])
        except SafeserError as error:
            logger.error("task %s[%s] is refused: %s", self.name, task_id, error)  # noqa: TRY400
            raise Ignore(str(error)) from None

    def _take(self, message: Opened, expires: str | None) -> None:
        once, ttl, about, *_ = self.app.safeser
        end = maybe_iso8601(expires).timestamp() if expires else message.made + ttl
        if time.time() > min(end, message.made + ttl):
            raise EnvelopeError("a task has expired", rule="box.expired", fix="Send it again.")
        if once is not None:
            with once.taking(message.sender, Facts(message.id, message.made, int(ttl), about)):
                pass


class SealedRedis(RedisBackend):  # type: ignore[misc]  # as above
    """Celery's results in Redis, each read as that of the task that it was sealed for.

    A worker reads none that it sealed for clients.
    """

    def ensure_chords_allowed(self, *_args: Any, **_options: Any) -> None:
        """Refuse chords: their parts lie in Redis, and a part does not say of which group it is.

        :raises ConfigError: always.
        """
        raise ConfigError(
            "chords are not sealed",
            rule="box.celery",
            fix="Wait for the group's results in the client, and send the next task then.",
        )

    apply_chord = ensure_chords_allowed

    def save_group(self, *_args: Any, **_options: Any) -> Any:
        """Refuse to keep a group in Redis: its record does not say of which group it is.

        :raises ConfigError: always.
        """
        raise ConfigError(
            "records of groups are not sealed for their group",
            rule="box.celery",
            fix="Keep the ids of the group's results in the client.",
        )

    restore_group = save_group

    def _get_task_meta_for(self, task_id: str) -> Any:
        try:
            return _of_task(task_id, super()._get_task_meta_for(task_id))
        except DecodeError as error:
            if getattr(error.args[0], "rule", "") != "box.recipient":
                raise
            return {"status": states.PENDING, "result": None}

    def meta_from_decoded(self, meta: Any) -> Any:
        """Refuse what is sealed as a result and is none, such as Celery's record of a group."""
        if type(meta) is not dict or not all(type(meta.get(each)) is str for each in _RESULT):
            raise EnvelopeError("what came for a task is no result of one", rule="box.task")
        return super().meta_from_decoded(meta)

    def exception_to_python(self, exc: Any) -> Any:
        """Return the failure *exc* by a class of ``errors``, and others as a RemoteError.

        Celery takes any class of a loaded module, such as SystemExit.
        """
        if type(exc) is not dict:
            return exc if exc is None or isinstance(exc, Exception) else RemoteError(str(exc))
        name, text = _class_name(exc.get("exc_module"), exc.get("exc_type")), exc.get("exc_message")
        args: Any = text if type(text) in (list, tuple) else (text,)
        try:
            return self.app.safeser.errors[name](*args)
        except Exception:  # no listed class, or not with these arguments
            return RemoteError(", ".join(map(str, args)), remote_type=name)

    def _mget_to_results(self, *args: Any, **kwargs: Any) -> Any:
        found = super()._mget_to_results(*args, **kwargs)
        return {task_id: _of_task(task_id, meta) for task_id, meta in found.items()}


def _class_name(module: Any, name: Any) -> str:
    return f"{module}:{name}"


def _of_task(task_id: str, meta: Any) -> Any:
    # What came from Redis names its task; what Celery says where nothing is there does not.
    if meta.get("task_id", task_id) != task_id:
        raise EnvelopeError("the result of another task came for this one", rule="box.task")
    return meta


def _check_tasks(instance: Any, **_: Any) -> None:
    """End a worker that would run tasks unsealed."""
    installed, checked = getattr(instance.app, "safeser", None), SealedTask.before_start
    if installed is None:
        return
    for name, value in installed.settings.items():
        if instance.app.conf[name] != value:
            raise SystemExit(f"{name} was changed: call safeser.boxes.kombu.install after that")
    for name, task in instance.app.tasks.items():
        if type(task).before_start is not checked or task.Request is not SealedRequest:
            raise SystemExit(f"{name} does not check what was sealed: derive it of SealedTask")
