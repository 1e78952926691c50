"""Serialize objects to headers and frames by the families that a context allows, in its order.

The one rule: an object is sent exactly as it is, or refused with the name of its type; there is no
fallback to a family that was not requested.
"""

from __future__ import annotations

import contextvars
import copy
import functools
import io
import threading
import types as kinds
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

from safeser.errors import PayloadError, SafeserError, SerializationError
from safeser.families import pickled, plain
from safeser.families.errors import wire as errors
from safeser.families.instead import Sent, instead_of, is_record, known_instead, registers
from safeser.families.marked import Serialize, Serialized
from safeser.families.plain import CYCLE, DEFAULTS, DEPTH_CEILING, RAISE, Unencodable, label
from safeser.families.receiving import readable
from safeser.families.registered import hosted
from safeser.families.registered.dispatch import functions
from safeser.families.registered.hosted import Failed
from safeser.families.registered.own import before_typed, own_families
from safeser.families.registry import Parts, Typed, registry
from safeser.families.stdlib import columns
from safeser.families.tree import PICKLES, parse
from safeser.gate.refusals import shortened
from safeser.gate.values import ELEMENT, FAMILIES, Context, Grant, Limits
from safeser.pickles import Budget, Profile
from safeser.trace.probe import Done, is_traced, size_of, watch

__all__ = ["serialize"]

#: Bytes inside a list or dict that are longer than this travel in a frame of their own, uncopied.
_LARGE_BYTES = 1 << 20

#: Shorter ones are cheaper inside msgpack than with a header of their own.
_SMALL_BYTES = 1 << 12
_PLAIN = frozenset({type(None), bool, int, float, str})
_COLLECTIONS = frozenset({list, tuple, set, frozenset, dict})

#: What no family can carry, pickles neither.
_OF_THIS_PROCESS = (
    io.IOBase,
    kinds.AsyncGeneratorType,
    kinds.CoroutineType,
    kinds.FrameType,
    kinds.GeneratorType,
    kinds.ModuleType,
    kinds.TracebackType,
    contextvars.Context,
    contextvars.ContextVar,
    threading.Thread,
    type(threading.Lock()),
    type(threading.RLock()),
    weakref.ref,
)

#: Families that walk an object: what is too deep or too large for one is so for the other.
_BY_VALUE = ("dask", "msgpack")


def serialize(
    x: object,
    families: Sequence[str],
    *,
    limits: Limits = DEFAULTS,
    iterate_collection: bool | None = None,
    context: Context | Mapping[str, Any] | None = None,
    types: Collection[str] | None = None,
    reads: Grant | None = None,
) -> Sent:
    """Return the header and frames of *x* in the first of *families* that can carry it.

    :param iterate_collection: whether elements of *x*, if it is a list, tuple, set or dict, are
        serialized one by one; None lets each element's own type decide, and so do elements.
    :param context: handed to registered functions that take it; what is built in is the same for
        every peer.
    :param types: of what was registered with distributed's decorators, the names that the other
        side reads; None where that is not known.
    :param reads: what the reader takes, where the reader alone registers classes, as Dask's clients
        do. Instances of classes that its pickles may not name are then written as
        ``register_class`` would have them, and for a reader of cloudpickle as pickles.
    :raises SerializationError: that names the object inside *x* that none of *families* can carry.
    """
    for family in families:
        if family not in FAMILIES and own_families.find(family) is None:
            raise SerializationError(
                f"family {shortened(family, 120)} is listed, and not registered here",
                rule="families.serializer",
                fix="Register it with register_serialization_family, or install what declares it.",
            )
    words = hosted.words_of(context)
    sender = _Sender(tuple(families), limits, iterate_collection, words, types, reads)
    if not is_traced():
        return _sent(x, sender, context)
    return watch(
        "serialize",
        lambda: _sent(x, sender, context),
        lambda sent: Done(x, sent[0]["serializer"], size_of(sent[1])),
    )


def _sent(x: object, sender: _Sender, context: Context | Mapping[str, Any] | None) -> Sent:
    try:
        sent = sender.send(x, 0)
        return readable(x, sent, sender.limits, room=sender.room, pending=sender.pending)
    except Unencodable as error:
        _refuse(error, sender, context)
    except RecursionError:
        raise SerializationError(
            "the object is nested too deep to serialize",
            rule="families.cannot-serialize",
            fix="Flatten it, or break the cycle inside it.",
        ) from None


def _refuse(
    error: Unencodable, sender: _Sender, context: Context | Mapping[str, Any] | None
) -> NoReturn:
    name = _shown(type(error.value))
    inside = "an object inside it" if error.where else "an object"
    reason = f": {error.reason}" if error.reason else ""
    listed = [each for each in sender.families if each != "error"]  # it takes exceptions alone
    tried = ", ".join(listed or sender.families) or "no family at all"
    towards = f" in context {context}" if isinstance(context, Context) else ""
    raise SerializationError(
        f"cannot serialize {inside} of type {name} by {tried}{towards}{reason}",
        rule="families.cannot-serialize",
        where=error.where.strip(),
        fix=_advice(error, sender, isinstance(context, Context)),
    ) from error.__cause__


def _shown(kind: type) -> str:
    name = shortened(f"{kind.__module__}:{kind.__qualname__}", 120)
    return "".join(char if char.isprintable() else "?" for char in name)


def _advice(error: Unencodable, sender: _Sender, decided: bool) -> str:
    """Return advice: register the type, convert the value, or use another family."""
    value, families = error.value, sender.families
    grant = "a context that grants family" if decided else "family"
    alone = (
        error.fix
        or ("" if error.final else instead_of(error, lambda made: sender.anew().send(made, 0)))
        or _beyond_families(error, grant, decided)
        or _asked_too_little(error, sender)
    )
    if alone:
        return alone
    registrable = not error.final and registers(
        value,
        lambda name, parts: sender.anew().parts(value, name, parts, 0, families),
        sender.limits,
    )
    base = next((base for base in type(value).__mro__[1:] if registry.for_class(base)), None)
    if error.final and error.reason != CYCLE:
        # Pickles are read within the same limits.
        return "Flatten it, or send its parts as values of their own."
    elif error.final:
        advice = "Break the cycle inside it"
    elif error.reason and _is_listed(type(value)):
        advice = "Change that in it, or send its parts as values of their own"
    elif registrable and is_record(type(value)):
        advice = f"Register its class on both sides: safeser.register_class({_bare_name(value)})"
    elif functions.writes_elsewhere(type(value)):
        advice = (
            "Its library registered it with distributed's own decorators: let the other side read"
            f" it by 'dask: {{types: [\"{_shown(type(value))}\"]}}' in the policy's context, or"
            " register it with safeser.register_serialization on both sides"
        )
    elif base is not None:
        advice = (
            f"It is no direct instance of {_shown(base)}, which is registered: convert it to one,"
            " or register its own type with safeser.register_serialization on both sides"
        )
    else:
        name = _bare_name(value)
        way = (
            f"safeser.register_generic({name})"
            if registrable
            else f"safeser.register_serialization({name}, serialize, deserialize)"
        )
        advice = (
            "Convert it to arrays, frames or plain values, or register its type on both sides:"
            f" {way}"
        )
    if "pickle" in families or "cloudpickle" in families:
        return f"{advice}."
    where = "" if decided or error.final else " under a policy that allows what is in it"
    # A context may grant a family that the receiver does not list among its deserializers.
    where = ", if the receiver names it among the deserializers" if decided else where
    return f"{advice}, or ask for {grant} pickle{where}."


def _bare_name(value: Any) -> str:
    """Return the name of the class of *value*, as its module writes it."""
    name = type(value).__qualname__.rpartition(">.")[2]
    return "".join(filter(str.isprintable, name))


def _beyond_families(error: Unencodable, grant: str, decided: bool) -> str:
    """Return advice for objects that neither a registration nor a pickle can carry."""
    value = error.value
    if type(value) is Serialized:
        return "Serialize it anew with the families that are asked for here, or ask for its family."
    if isinstance(error, Failed):
        if error.__cause__:
            return "The cause is chained to this error."
        return "Return a dictionary of plain values with text for keys, and a list of buffers."
    if _is_code(type(value)):
        risk = (
            "by which the sender may run code where it is read"
            if decided
            else "which is read only under a policy that grants it"
        )
        return (
            "A function or class is code: send plain values in its place, or ask for"
            f" {grant} cloudpickle, {risk}."
        )
    if issubclass(type(value), _OF_THIS_PROCESS):
        return "It is valid in this process only: send its content, or make it where it is used."
    over = error.reason and not error.final
    return RAISE if over and type(value) in _PLAIN else ""


def _asked_too_little(error: Unencodable, sender: _Sender) -> str:
    """Return advice where the caller's own arguments rule out a suitable family."""
    if error.final:
        return ""
    if "dask" not in sender.families:
        return "Allow family dask too, or convert it to plain values."
    if sender.iterate is False and error.path and sender.holds_typed(error.value, 5):
        return "Omit iterate_collection=False: it prevents serializers of element types."
    plain_one = type(error.value) in _PLAIN | _COLLECTIONS
    if plain_one and "msgpack" not in sender.families and not error.final:
        return "Allow family msgpack too: it carries plain values."
    return ""


def _is_code(kind: type) -> bool:
    """Whether instances of *kind* are classes, functions or methods."""
    if issubclass(kind, (type, kinds.BuiltinFunctionType, kinds.MethodWrapperType)):
        return True
    return hasattr(kind, "__get__") and not hasattr(kind, "__set__")


def _is_listed(kind: type) -> bool:
    """Whether *kind* has a serializer, of its own or, where its library is listed, a base's."""
    typed = registry.for_class(kind)
    if typed is None:
        return False
    package = typed.name.partition(":")[0].partition(".")[0]
    return kind in typed.classes or kind.__module__.partition(".")[0] == package


def _encoded(x: Any, typed: Typed, limits: Limits) -> Parts:
    """Return the parts of *x*; what its receiver would refuse, no family here can carry."""
    try:
        return typed.encode(x, limits)
    except PayloadError as error:
        raise Unencodable(x, error.message, fix=error.fix) from None


#: In what joblib's Dask backend has its functions return what they raise. A pickle of it calls a
#: function of joblib's; joblib raises whatever error it gets in place of a result, and waits for
#: ever where it gets none (joblib 1.6, ``_dask.py``).
_RAISED = ("joblib.externals.loky.process_executor", "_ExceptionWithTraceback")


@functools.lru_cache(maxsize=256)
def _typed_first(families: tuple[str, ...]) -> tuple[str, ...]:
    """Return *families* for the parts of a typed value, those of one's own behind the typed ones.

    A typed value is read from typed parts, as a sparse matrix from arrays.
    """
    own = before_typed(families)
    if not own:
        return families
    others = [family for family in families if family not in own]
    behind = max(others.index(family) for family in _BY_VALUE if family in others) + 1
    return (*others[:behind], *own, *others[behind:])


@dataclass(eq=False)
class _Sender:
    """One run over one object; counts what it holds so that shared or cyclic parts end."""

    families: tuple[str, ...]
    limits: Limits
    iterate: bool | None
    context: dict[str, Any] | None
    types: Collection[str] | None
    reads: Grant | None

    def __post_init__(self) -> None:
        self.room, self.pending = self.limits.max_memory, 0
        self.mixed: dict[int, object] = {}
        self.depth = min(self.limits.max_depth, DEPTH_CEILING)
        self.pickles = any(family in self.families for family in PICKLES)

    def anew(self) -> _Sender:
        """Return the same for another object."""
        other = copy.copy(self)
        other.room, other.pending, other.mixed = self.limits.max_memory, 0, {}
        return other

    def send(self, x: Any, depth: int, families: Sequence[str] = ()) -> Sent:
        """Try each family in turn; raise the most precise failure among them.

        :param families: those for *x* where it is part of another value.
        """
        if depth > self.depth:
            raise Unencodable(x, f"it is nested more than {self.depth} deep", final=True)
        if type(x) is Serialize:
            return self.send(x.data, depth + 1, families)
        if type(x) is Serialized:
            return self.serialized(x)
        self.room -= ELEMENT
        if self.room < 0:
            raise Unencodable(x, plain.TOO_MUCH, final=True, fix=plain.LESS)
        families = families or self.families
        failure: Unencodable | None = None
        room = self.room
        try:
            for family in families:
                takes = _TAKES.get(family)
                if self.settled(x, failure, family) or (takes is not None and not takes(x)):
                    continue
                try:
                    way = _WAYS.get(family)
                    if way is None:
                        return self.own(x, family, depth, families)
                    return way(self, x, depth, families)
                except Failed:
                    raise
                except Unencodable as error:
                    self.room = room
                    rank = (len(error.path), bool(error.reason))
                    if failure is None or rank > (len(failure.path), bool(failure.reason)):
                        failure = error
            raise failure or Unencodable(x)
        finally:
            # Its traceback holds this frame: the cycle would keep x in memory until the garbage
            # collector comes by.
            failure = None

    def settled(self, x: Any, failure: Unencodable | None, family: str) -> bool:
        """Tell that *family* would fail as the one before did, or send what is refused then."""
        if failure is not None and failure.fix and failure.value is not x and family == "pickle":
            # What *x* is made of is at fault, so that its pickle, too, would name its class.
            return self.reads is not None and not self.may_name(type(x), self.reads)
        if failure is None or family != "pickle" or not failure.path or self.reads is None:
            return failure is not None and failure.final and family in _BY_VALUE
        return known_instead(type(failure.value)) is not None

    def msgpack(self, x: Any, depth: int, families: Sequence[str]) -> Sent:
        try:
            return self.plain(x, depth, families)
        except Unencodable:
            if type(x) not in _COLLECTIONS or "dask" in families or not self.iterates(x, depth):
                raise
            return self.collection(x, depth, families)

    def plain(self, x: Any, depth: int, families: Sequence[str]) -> Sent:
        largest = _LARGE_BYTES if "dask" in families else None
        frame, self.room = plain.encode_counted(
            x, limits=self.limits, room=self.room, largest=largest, depth=depth
        )
        return {"serializer": "msgpack"}, [frame]

    def dask(self, x: Any, depth: int, families: Sequence[str]) -> Sent:
        if issubclass(type(x), BaseException):
            return self.error(x, depth, families)
        if type(x) in _COLLECTIONS:
            tried = id(x) in self.mixed or (depth == 0 and self.iterate)
            if "msgpack" in families and not tried:
                try:
                    return self.plain(x, depth, families)
                except Unencodable as error:
                    if error.final:
                        raise
                    # Something in it is not plain: element by element, and so the lists in it that
                    # lead there. To try each again, down to the same place, is quadratic.
                    self.mixed.update((id(inner), inner) for inner in error.within)
            if not self.iterates(x, depth):
                raise Unencodable(x)
            return self.column(x, depth, families) or self.collection(x, depth, families)
        small = type(x) in _PLAIN or (type(x) is bytes and len(x) < _SMALL_BYTES)
        if small and "msgpack" in families:
            return self.plain(x, depth, families)
        return self.typed(x, depth, families)

    def typed_for(self, x: object) -> Typed | None:
        listed = registry.for_object(x) or functions.for_object(x, self.types)
        if self.reads is None:
            return listed
        if "cloudpickle" in self.families:
            # The reader takes any class, and may not have registered this one.
            return None if listed is not None and registry.is_own(listed.name) else listed
        known = self.may_name(type(x), self.reads) or known_instead(type(x))
        if listed is not None or known:
            return listed
        return registry.for_writing(type(x))

    def may_name(self, kind: type, reads: Grant) -> bool:
        """Tell whether a pickle of an instance of *kind* may be read."""
        if "pickle" not in self.families:
            return False
        return Profile.granted(reads.profiles, reads.allow).get(_shown(kind)) is not None

    def typed(self, x: Any, depth: int, families: Sequence[str]) -> Sent:
        typed = self.typed_for(x)
        if typed is None:
            named = type(x).__module__, type(x).__qualname__
            if named == _RAISED and isinstance(vars(x).get("exc"), BaseException):
                return self.error(x.exc, depth, ())
            reason, fix = registry.advice_for(type(x))
            raise Unencodable(x, reason, fix=fix)
        if typed.contextual:
            parts = typed.encode(x, self.limits, self.context)
        else:
            parts = _encoded(x, typed, self.limits)
        return self.parts(x, typed.name, parts, depth, families)

    def parts(self, x: Any, name: str, parts: Parts, depth: int, families: Sequence[str]) -> Sent:
        header: dict[str, Any] = {"serializer": "dask", "type": name, "sub-header": parts.meta}
        frames = list(parts.frames)
        if name != "numpy:ndarray":  # it is as large as its bytes
            said = [each for each in parts.meta.values() if type(each) is bytes]
            self.pending += size_of([*said, *frames])
        if parts.children:
            self.children(x, (header, frames), parts.children, depth, _typed_first(tuple(families)))
        return header, frames

    def column(self, x: Any, depth: int, families: Sequence[str]) -> Sent | None:
        """Serialize many scalars of one type at once; None if *x* holds anything else."""
        found = columns.parts_of(x, self.limits)
        if found is None:
            return None
        return self.parts(x, *found, depth, families)

    def collection(self, x: Any, depth: int, families: Sequence[str]) -> Sent:
        header: dict[str, Any] = {"serializer": "collection", "type": type(x).__name__}
        children: list[tuple[str, object]]
        if type(x) is dict:
            children = [(".keys()", tuple(x)), *((f"[{label(k)}]", v) for k, v in x.items())]
        else:
            children = [(f"[{position}]", item) for position, item in enumerate(x)]
        frames: list[Any] = []
        self.children(x, (header, frames), children, depth, families)
        return header, frames

    def children(
        self,
        x: object,
        into: Sent,
        children: Sequence[tuple[str, object]],
        depth: int,
        families: Sequence[str],
    ) -> None:
        """Serialize *children* of *x* *into* a header, their frames behind those already there."""
        header, frames = into
        if "msgpack" not in families:
            families = (*families, "msgpack")  # any value may hold plain ones
        header["sub-headers"], header["frame-lengths"] = [], []
        for name, child in children:
            try:
                sub_header, sub_frames = self.send(child, depth + 1, families)
            except Unencodable as error:
                error.inside(x, name)
                raise
            header["sub-headers"].append(sub_header)
            header["frame-lengths"].append(len(sub_frames))
            frames.extend(sub_frames)

    def own(self, x: Any, name: str, depth: int, families: Sequence[str]) -> Sent:
        family = own_families.find(name)
        if family is None or family.dumps is None:
            raise Unencodable(x, f"family {name} can only be read here")
        try:
            header, frames = hosted.dump(
                family.dumps,
                x,
                self.limits,
                context=self.context,
                contextual=family.dumps_context,
                by=f"family {name}",
            )
        except Failed:
            raise
        except Unencodable:
            # A collection of what it can carry, where no other family takes collections apart.
            alone = "dask" not in families and "msgpack" not in self.families
            if type(x) not in _COLLECTIONS or not alone or not self.iterates(x, depth):
                raise
            return self.collection(x, depth, families)
        # Dask's families name themselves; here the outer header does.
        header.pop("serializer", None)
        return {"serializer": name, "sub-header": header}, frames

    def serialized(self, x: Serialized) -> Sent:
        """Forward a serialized payload, or fail unless it is complete and of requested families."""
        header, frames = x.plain(self.limits)
        try:
            # A copy, because the caller could change the header after it was checked.
            header = plain.decode(plain.encode(header, limits=self.limits), limits=self.limits)
        except Unencodable:
            raise Failed(x, "its header holds more than plain values") from None
        budget = Budget(self.limits)
        for node in parse(header, frames, limits=self.limits):
            self.room -= ELEMENT
            family = node.serializer
            # The family that a pickle claims is not trusted: it is derived from the content.
            if family in PICKLES and self.types is None and "cloudpickle" not in self.families:
                family = pickled.family_of(node, self.limits, budget)
            if family not in (*self.families, "collection", "msgpack", "error"):
                raise Failed(x, f"what it holds is of family {family}")
        self.pending += size_of(frames)
        return header, frames

    def iterates(self, x: Any, depth: int) -> bool:
        """Whether a collection goes element by element rather than whole to a pickle."""
        if depth == 0 and self.iterate is not None:
            return self.iterate
        return not self.pickles or self.holds_typed(x, 5)

    def error(self, x: Any, depth: int, families: Sequence[str]) -> Sent:
        frame = errors.encode(errors.to_data(x), limits=self.limits)
        self.pending += len(frame)
        return {"serializer": "error"}, [frame]

    def pickled(self, x: Any, family: str) -> Sent:
        known = known_instead(type(x)) is not None
        reads = self.reads if known and family == "pickle" else None
        try:
            sent = pickled.encode(x, family, reads=reads, limits=self.limits)
        except SafeserError as error:
            # What is code, or valid here only, by itself is named already.
            known |= _is_code(type(x)) or issubclass(type(x), _OF_THIS_PROCESS)
            reason = "it, or something in it, cannot be pickled"
            if error.rule != "pickle.unwritable":
                reason = error.message
            raise Unencodable(x, "" if known else reason) from None
        if family == "pickle":  # who takes code does not count it
            self.pending += len(sent[1][0])
        return sent

    def holds_typed(self, x: Any, room: int) -> bool:
        """Whether something at most *room* levels down in *x* has a serializer, or known advice."""
        if type(x) not in _COLLECTIONS:
            advised = self.reads is not None and known_instead(type(x)) is not None
            return type(x) not in _PLAIN and (advised or self.typed_for(x) is not None)
        items = chain(x, x.values()) if type(x) is dict else x
        return room > 0 and any(self.holds_typed(item, room - 1) for item in items)


#: Cheap tests for families that refuse most objects: raising an error for each refused object
#: takes as long as encoding a small one.
_TAKES: dict[str, Callable[[Any], bool]] = {
    "msgpack": lambda x: type(x) in _COLLECTIONS or plain.is_plain(type(x)),
    "error": lambda x: issubclass(type(x), BaseException),  # what __class__ says may be untrue
}

_WAYS: dict[str, Callable[[_Sender, Any, int, Sequence[str]], Sent]] = {
    "msgpack": _Sender.msgpack,
    "error": _Sender.error,
    "dask": _Sender.dask,
    "pickle": lambda sender, x, depth, families: sender.pickled(x, "pickle"),
    "cloudpickle": lambda sender, x, depth, families: sender.pickled(x, "cloudpickle"),
}
