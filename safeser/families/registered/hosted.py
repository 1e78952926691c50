"""Call the serialization functions of the host program, and check their arguments and results.

The one rule: the result of such a function is checked before it is sent, and its arguments from a
peer are plain and bounded before it is called. What it does then is the host's own code.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from safeser.errors import ConfigError
from safeser.families.plain import DEPTH_CEILING, Unencodable
from safeser.gate.values import Context, Limits

if TYPE_CHECKING:
    from safeser.families.tree import Node

_INT_MIN, _INT_MAX = -(1 << 63), (1 << 64) - 1  # what msgpack can say


#: Frames below it, in bytes, reach registered functions as bytes, which have every method that text
#: has; copying a larger one costs more than calling the function.
SMALL_FRAME = 1 << 16


#: Limits of the message that a registered function reads a part of; None outside of one.
current_limits: ContextVar[Limits | None] = ContextVar("current_limits", default=None)


class Failed(Unencodable):
    """A registered function raised: its family was asked for, so no other is tried."""


def takes_context(function: Callable[..., Any] | None) -> bool:
    """Tell whether *function* has a parameter named ``context``, as Dask asks it."""
    if function is None:
        return False
    try:
        return "context" in inspect.signature(function).parameters
    except (TypeError, ValueError):  # some builtins have no signature
        return False


def check_function(function: object) -> None:
    if function is not None and not callable(function):
        raise ConfigError("a registered function must be callable", rule="families.register")


def words_of(context: Context | Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return *context* in the form that Dask's functions expect: a dictionary of their own.

    As Dask's has, ``sender`` and ``recipient`` are addresses, None without a connection. Beside
    them stand the principals of a :class:`Context` and how its message travels.
    """
    if isinstance(context, Context):
        sender, recipient = context.addresses or (None, None)
        return {
            "sender": sender,
            "recipient": recipient,
            "sender_principal": context.sender,
            "recipient_principal": context.recipient,
            "kind": context.kind.value,
            "operation": context.operation,
            "transport": context.transport,
            "same_host": context.same_host,
        }
    if context is None:
        return None
    if not isinstance(context, Mapping):
        raise ConfigError(
            "a context is a safeser.Context, or a mapping as Dask's", rule="families.context"
        )
    return dict(context)


def dump(
    function: Callable[..., Any],
    x: object,
    limits: Limits,
    *,
    context: dict[str, Any] | None,
    contextual: bool,
    by: str,
) -> tuple[dict[str, Any], list[Any]]:
    """Return the header and frames that *function* makes of *x*.

    :param by: what to call *function* in errors.
    :raises Unencodable: where it raises NotImplementedError: it is for something else.
    :raises Failed: where it fails, or returns what cannot travel.
    """
    try:
        made = function(x, context=context) if contextual else function(x)
    except NotImplementedError:
        raise Unencodable(x) from None
    # The host's own function may raise anything; the cause is chained for debugging.
    except Exception as error:
        raise Failed(x, f"{by} failed with {type(error).__name__}") from error
    try:
        header, frames = made
        frames = list(frames)
    except (TypeError, ValueError):
        raise Failed(x, f"{by} returned no pair of header and frames") from None
    for frame in frames:
        # A cast finds structures and gaps; pointers to objects it takes for bytes.
        try:
            view = memoryview(frame)
            view.cast("B")
            pointers = "O" in view.format
        except TypeError:
            pointers = True
        if pointers:
            raise Failed(x, f"{by} returned a frame that is not one run of bytes") from None
    try:
        return _plain(header, limits), frames
    except _NotPlainError as error:
        raise Failed(x, f"{by} returned a header {error}") from None


def check_header(node: Node, limits: Limits) -> None:
    """Refuse a header for a registered function that is not plain; replace it by one that is."""
    if node.children:
        node.refuse("its function would never see the values in it", "families.child-count")
    try:
        node.meta = _plain(node.meta, limits)
    except _NotPlainError as error:
        node.refuse(f"it is one {error}", "families.header")


def load(
    function: Callable[..., Any],
    header: dict[str, Any],
    frames: Sequence[memoryview],
    *,
    context: dict[str, Any] | None,
    contextual: bool,
    views: bool,
    limits: Limits | None = None,
) -> Any:
    """Call *function* as Dask does: with a header whose sequences are tuples, and its frames.

    :param views: whether it is handed memoryviews of frames from :data:`SMALL_FRAME` on.
    :param limits: those of the message, for what it reads by safeser's own functions.
    """
    handed = [
        frame if views and frame.nbytes >= SMALL_FRAME else frame.tobytes() for frame in frames
    ]
    before = current_limits.set(limits)
    try:
        if contextual:
            return function(header, handed, context=context)
        return function(header, handed)
    finally:
        current_limits.reset(before)


class _NotPlainError(Exception):
    pass


def _plain(header: object, limits: Limits) -> dict[str, Any]:
    """Return a copy of *header* as msgpack would bring it: plain values, sequences as tuples.

    The same on both sides and by every transport, so that a test within one process shows what a
    peer will see.
    """
    if type(header) is not dict:
        raise _NotPlainError("that is not a dictionary")
    room = [limits.elements]
    plain: dict[str, Any] = _copied(header, min(limits.max_depth, DEPTH_CEILING), room)
    return plain


def _copied(value: Any, depth: int, room: list[int]) -> Any:
    room[0] -= 1
    if room[0] < 0:
        raise _NotPlainError("with more values than max_memory holds")
    kind = type(value)
    if kind in (bool, float, bytes, type(None)):
        return value
    if kind is int and _INT_MIN <= value <= _INT_MAX:
        return value
    if kind is str:
        return _text(value)
    if depth <= 0:
        raise _NotPlainError("that is nested too deep")
    if kind in (list, tuple):
        return tuple([_copied(item, depth - 1, room) for item in value])
    if kind is dict:
        copied = {}
        for key, item in value.items():
            if type(key) is not str:
                raise _NotPlainError("with a key that is not text")
            copied[_text(key)] = _copied(item, depth - 1, room)
        return copied
    raise _NotPlainError("that holds more than plain values")


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _NotPlainError("with text that is not Unicode") from None
    return text
