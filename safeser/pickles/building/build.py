"""Build the object that a judged program describes, step by step, in the order of the stream.

The one rule: no code of the peer's choice is called. A global is either a listed reference or
stands for a reviewed function, which checks its arguments and builds the object. There is no
recursion, and each step is charged to a budget that the size of the input bounds.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from safeser.allowed import PLAIN
from safeser.errors import SafeserError
from safeser.gate.values import Limits
from safeser.pickles.budget import Budget
from safeser.pickles.building.members import Members
from safeser.pickles.building.memory import Memory
from safeser.pickles.building.own import OwnClass
from safeser.pickles.live import witness
from safeser.pickles.names import shown
from safeser.pickles.nodes import (
    ABSENT,
    BUILD,
    EXTEND,
    LEAVES,
    UPDATE,
    Apart,
    Buffer,
    ByteArray,
    Call,
    DictOf,
    FrozenSetOf,
    GlobalRef,
    ListOf,
    Node,
    Persistent,
    Program,
    SetOf,
    TupleOf,
)
from safeser.pickles.profiles import Entry, Profile
from safeser.pickles.shape import KIB, Shape, Tree, leaf_weight, weigh
from safeser.pickles.shims import Draft, Site, are_plain_keys, bad, shim

__all__ = ["Builder"]

_UNMADE = object()
_UNKNOWN = Shape(None, None)
#: Work of the builder itself for one call, in elements.
_CALL = 8


#: Makes the object of one call from its arguments.
_Maker = Callable[[Call, list[Any], Mapping[str, Any]], Any]


class Builder(Site):
    """Builds one judged program.

    :param persistent_load: what a persistent id stands for; the caller's own function.
    :param budget: what is left for the message that the pickle came in.
    :param shape: what is known of the value's size.
    :param apart: values that travel beside the program, in order; each has ``nbytes``.
    """

    def __init__(
        self,
        program: Program,
        profile: Profile,
        *,
        buffers: Sequence[Any],
        limits: Limits,
        budget: Budget | None = None,
        persistent_load: Callable[[Any], Any] | None = None,
        shape: Shape = _UNKNOWN,
        apart: Sequence[Any] = (),
    ) -> None:
        beside = [value.nbytes for value in apart]
        sizes = [memoryview(buffer).nbytes for buffer in buffers]
        super().__init__(
            limits,
            given=program.size + sum(sizes) + sum(beside),
            budget=budget,
            shared=not program.unshared,
        )
        self.program = program
        self.profile = profile
        self.buffers = buffers
        self.apart = apart
        self.persistent_load = persistent_load
        self.values: list[Any] = [_UNMADE] * len(program.nodes)
        if program.calls:
            self.memory = Memory()
            self.budget.hold(len(program.nodes) - program.calls)
            for value in apart:
                # It came with the message, whatever holds it.
                self.memory.added(value)
            longest = max(program.longest, *sizes, *beside, 0)
            self.paid = shape.tree is not None and self.pays(shape.tree, longest)
            if not self.paid:
                known = None if sizes or beside else shape.weights
                self.weights = known or weigh(program, sizes, beside)
        self.makers: dict[str, _Maker] = {}
        self.references: dict[str, Any] = {}
        #: The node whose step failed, so that an error can show its path.
        self.failed: Node | None = None

    def build(self) -> Any:
        """Return the object, or raise :class:`PayloadError`."""
        skipped = self.program.argument_tuples
        node: Any = None
        values = self.values
        try:
            for node in self.program.nodes if self.profile.allowed else ():
                # Looked up here, so that a wrong name is refused before anything runs.
                if type(node) is GlobalRef and node.name in self.profile.allowed:
                    self.profile.live(self.profile.entries[node.name])
            for step in self.program.steps:
                if type(step) is tuple:
                    operation, node, start, stop = step
                    self.change(operation, node, start, stop)
                    continue
                node = step
                kind = type(node)
                # The frequent ones without a call for each.
                if kind is DictOf:
                    values[node.index] = {}
                elif kind is ListOf:
                    values[node.index] = []
                elif kind is not TupleOf:
                    values[node.index] = _MAKERS[kind](self, node)
                elif node.index not in skipped:
                    values[node.index] = tuple(self.all_of(node.items))
            return self.value(self.program.root)
        except SafeserError as error:
            self.locate(error, node)
            raise
        # Two keys of one hash are compared, and listed types may raise at each other (a Decimal
        # does so at a NumPy integer); the text may hold their values.
        except Exception:
            refusal = bad("values", "the values of the pickle cannot be put together")
            self.locate(refusal, node)
            raise refusal from None

    def locate(self, error: SafeserError, node: Node | None) -> None:
        """Add the offset of the failed step to *error*."""
        self.failed = node
        error.fix = error.fix or "No profile and no limit allows this value."
        if error.where or node is None:
            return
        what = shown(node.callee.name) if isinstance(node, Call) else type(node).__name__
        error.where = f"{self.program.unit} {node.offset} ({what}, profile {self.profile.name})"

    def value(self, child: Any) -> Any:
        """Return the object that stands for *child*."""
        if not isinstance(child, Node):
            return child
        if type(child) is GlobalRef:
            return self.reference(child)
        made = self.values[child.index]
        if made is _UNMADE or type(made) is Draft:
            # It would be an incomplete object, or a placeholder.
            raise bad("unfinished", "an object is used before it is finished")
        return made

    def all_of(self, items: list[Any]) -> list[Any]:
        """Return the objects that stand for *items*."""
        if LEAVES.issuperset(map(type, items)):
            return items
        value = self.value
        return [item if type(item) in LEAVES else value(item) for item in items]

    def reference(self, ref: GlobalRef) -> Any:
        found = self.references.get(ref.name, _UNMADE)
        if found is not _UNMADE:
            return found
        entry = self.profile.get(ref.name)
        if entry is None or not entry.referable:
            raise bad("reference", "a name is used that was not judged")
        live = self.profile.live(entry)
        live.check()
        if entry.role == "constant" and type(live.found) not in PLAIN:
            raise bad("constant", f"{entry.name} is not a plain constant")
        if entry.hashable:
            self.hashable.add(type(live.found))
        self.references[ref.name] = live.found
        return live.found

    # -- steps ---------------------------------------------------------------------------------

    def change(self, operation: int, node: Any, start: int, stop: int) -> None:
        if operation == BUILD:
            self.finish(node)
            return
        if type(node) is Call:
            target, held = self.value(node), node.pairs if operation == UPDATE else node.items
        else:
            target, held = self.values[node.index], node.items
        whole = stop - start == len(held)
        added = self.all_of(held if whole else held[start:stop])
        if added and self.copied_from:
            self.check_growth(target)
        if operation == EXTEND:
            target.extend(added)
        elif operation == UPDATE:
            self.update(target, added, whole=whole)
        else:
            for member in added:
                self.check_key(target, member)
                target.add(member)

    def update(self, target: Any, added: list[Any], *, whole: bool) -> None:
        """Set the keys and values that *added* holds in turn in *target*.

        :param whole: *target* gets no others.
        """
        keys, parts = added[::2], iter(added)
        # Each key is followed by its value.
        pairs = zip(parts, parts, strict=True)
        if type(target) is dict and are_plain_keys(keys, whole=whole):
            self.budget.charge(len(keys))
            target.update(pairs)
            return
        for key, value in pairs:
            self.check_key(target, key)
            target[key] = value

    def make_persistent(self, node: Persistent) -> Any:
        if self.persistent_load is None:
            raise bad("persistent-id", "a persistent id needs a persistent_load function")
        pid = self.value(node.pid)
        try:
            return self.persistent_load(pid)
        except SafeserError:
            raise
        except Exception as error:  # the caller's own function, over a peer's id
            raise bad("persistent-id", "persistent_load does not know an id") from error

    # -- calls ---------------------------------------------------------------------------------

    def entry_of(self, call: Call) -> Entry:
        entry = self.profile.get(call.callee.name)
        if entry is None:
            raise bad("reference", "a name is used that was not judged")
        return entry

    def make_call(self, call: Call) -> Any:
        entry = self.entry_of(call)
        make = self.makers.get(entry.name)
        if make is None:
            make = self.makers[entry.name] = self.maker(entry)
        arguments = [
            argument
            if type(argument) is GlobalRef and argument.name in entry.args.get(position, ())
            else self.value(argument)
            for position, argument in enumerate(call.args.items)
        ]
        kwargs = {} if call.kwargs is None else dict(self.value(call.kwargs))
        if not self.paid:
            self.charge_work(call.args, call.kwargs)
        made = self.guarded(entry, make, call, arguments, kwargs)
        self.charge_made(made, arguments)
        if entry.hashable:
            self.hashable.add(type(made))
        return made

    def charge_made(self, made: Any, given: Sequence[Any]) -> None:
        """Charge for the memory of a call's result that was not *given* to it as an argument."""
        if type(made) is Draft:
            made = [part for part in made.parts if not any(part is each for each in given)]
            given = ()
        self.budget.charge_memory(*self.memory.added(made, given))

    def pays(self, tree: Tree, longest: int) -> bool:
        """Charge for all calls of a *tree* at once, and tell whether its own bytes bring that.

        Each call visits what is below it, so that all on one level visit no more than the whole.
        To weigh each of them takes longer than most of them do.

        :param longest: bytes of the longest leaf or buffer.
        """
        elements = tree.elements * (1 + (longest >> KIB))
        whole = elements * tree.levels + _CALL * self.program.calls
        if whole > self.budget.brought(self.given) or not self.budget.allows(elements):
            return False
        self.charge(whole)
        return True

    def charge_work(self, given: Any, named: Any = None) -> None:
        """Charge for a call before it is made, by all that it is given."""
        weights = self.weights
        elements = weights[given.index] if isinstance(given, Node) else leaf_weight(given)
        if named is not None:
            elements += weights[named.index]
        self.budget.work(_CALL + elements)

    def maker(self, entry: Entry) -> _Maker:
        """Return the maker of *entry*'s objects, after checking that it was not replaced."""
        if entry.make:
            function = shim(entry.make)
            witness(entry.name, function).check()
            reviewed = partial(function, self, entry.name)
            returned = self.profile.returned(entry)
            return partial(_call_reviewed, reviewed, entry, returned)
        live = self.profile.live(entry)
        live.check()
        if entry.role == "enum":
            if getattr(live.found, "__hash__", None) in _PLAIN_HASHES:
                self.hashable.add(live.found)
            return partial(_look_up, entry, Members(entry, live.found))
        if entry.role == "callable":
            return partial(_call_own, live.found, entry, self.profile.returned(entry))
        return partial(self.make_own, OwnClass(entry, live.found))

    def make_own(
        self, own: OwnClass, call: Call, arguments: list[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        made, alone = own.make(arguments, kwargs, new=call.new, old=call.old, base=call.base)
        if call.state is not ABSENT:
            if not alone:
                raise bad(
                    "build-target",
                    f"{own.entry.name} returned an object that is also referenced elsewhere",
                )
            self.unfinished[id(made)] = own
        return made

    def finish(self, call: Call) -> None:
        entry = self.entry_of(call)
        state = self.value(call.state)
        if not self.paid:
            self.charge_work(call.state)
        made = self.values[call.index]
        if not entry.state:
            # Only what make_own made, for this very call, is here.
            own = self.unfinished.pop(id(made), None)
            if own is None:
                raise bad("build-target", f"{entry.name} takes no state")
            self.guarded(entry, own.build, made, state)
            self.charge_built(made, state)
            return
        finished = self.guarded(entry, shim(entry.state), self, made, state)
        returned = self.profile.returned(entry)
        if returned and type(finished) not in returned:
            raise bad("class", f"{entry.name} made something of another type")
        self.values[call.index] = finished
        self.charge_built(finished, state)
        if entry.hashable:
            self.hashable.add(type(finished))

    def charge_built(self, finished: Any, state: Any) -> None:
        """Charge for an object's memory again after its state was set."""
        self.memory.forget(finished)
        self.budget.charge_memory(*self.memory.added(finished, (state,)))

    def guarded(self, entry: Entry, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except SafeserError:
            raise
        except Exception:  # a constructor may raise anything over a peer's arguments
            raise bad(
                "arguments", f"{entry.name} does not accept the arguments it was given"
            ) from None


def _call_reviewed(
    reviewed: Callable[..., Any],
    entry: Entry,
    returned: tuple[type, ...],
    _: Call,
    arguments: list[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    made = reviewed(*arguments, **kwargs)
    if returned and type(made) not in returned and type(made) is not Draft:
        raise bad("class", f"{entry.name} made something of another type")
    return made


def _call_own(
    function: Callable[..., Any],
    entry: Entry,
    returned: tuple[type, ...],
    _: Call,
    arguments: list[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    made = function(*arguments, **kwargs)
    if type(made) not in returned:
        raise bad("class", f"{entry.name} made something of another type")
    return made


def _look_up(
    entry: Entry, members: Members, _: Call, arguments: list[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Return a member that exists; calling the enum would run its ``_missing_``."""
    if len(arguments) != 1 or kwargs:
        raise bad("arguments", f"{entry.name} is looked up by one value")
    return members.of(arguments[0])


# Enums hash their names or values by these, which run no code of their own.
_PLAIN_HASHES: tuple[Any, ...] = (enum.Enum.__hash__, int.__hash__, str.__hash__)

_MAKERS: dict[type[Node], Callable[[Builder, Any], Any]] = {
    ListOf: lambda _, __: [],
    SetOf: lambda _, __: set(),
    DictOf: lambda _, __: {},
    ByteArray: lambda _, node: bytearray(node.data),
    FrozenSetOf: lambda builder, node: builder.frozen(builder.all_of(node.items)),
    Buffer: lambda builder, node: builder.opened(node, builder.buffers),
    Call: Builder.make_call,
    Persistent: Builder.make_persistent,
    Apart: lambda builder, node: builder.apart[node.number],
    # Looked up where it is used: as a callee it stands for a reviewed function, not for itself.
    GlobalRef: lambda _, __: None,
}
