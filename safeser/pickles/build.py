"""Building the object that a judged program describes, step by step, in the stream's order.

The one rule: nothing of the peer's is called. Globals are either handed over as listed references
or stand for a reviewed function that makes the object from arguments that it checks first. There
is no recursion, and what steps may take is charged to a budget that the size of the input bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from safeser.errors import SafeserError
from safeser.pickles.judge import argument_tuples
from safeser.pickles.nodes import (
    ADD,
    BUILD,
    EXTEND,
    MAKE,
    Buffer,
    ByteArray,
    Call,
    DictOf,
    FrozenSetOf,
    GlobalRef,
    ListOf,
    Node,
    Program,
    SetOf,
    TupleOf,
)
from safeser.pickles.profiles import Entry, Profile
from safeser.pickles.shims import Draft, Site, bad, shim
from safeser.values import Limits

__all__ = ["Builder"]

_UNMADE = object()


class Builder(Site):
    """Builds one judged program."""

    def __init__(
        self, program: Program, profile: Profile, *, buffers: Sequence[Any], limits: Limits
    ) -> None:
        held = sum(memoryview(buffer).nbytes for buffer in buffers)
        super().__init__(limits, given=program.size + held)
        self.program = program
        self.profile = profile
        self.buffers = buffers
        self.values: list[Any] = [_UNMADE] * len(program.nodes)

    def build(self) -> Any:
        """Return the object, or raise :class:`PayloadError`."""
        try:
            return self.run()
        except SafeserError:
            raise
        # Two keys of one hash are compared, and listed types may raise at each other (a Decimal
        # does so at a NumPy integer); the text may hold their values.
        except Exception:
            raise bad("values", "the values of the pickle cannot be put together") from None

    def run(self) -> Any:
        skipped = argument_tuples(self.program)
        for operation, node, start, stop in self.program.steps:
            if operation != MAKE:
                self.change(operation, node, start, stop)
            elif type(node) is not TupleOf or node.index not in skipped:
                self.values[node.index] = _MAKERS[type(node)](self, node)
        return self.value(self.program.root)

    def value(self, child: Any) -> Any:
        """Return the object that stands for *child*."""
        if not isinstance(child, Node):
            return child
        if type(child) is GlobalRef:
            return self.reference(child)
        made = self.values[child.index]
        if made is _UNMADE or type(made) is Draft:
            # It would be a half-made object, or a placeholder that leaks.
            raise bad("unfinished", "an object is used before it is finished")
        return made

    def reference(self, ref: GlobalRef) -> Any:
        entry = self.profile.get(ref.name)
        if entry is None or not entry.referable:
            raise bad("reference", "a name is used that was not judged")
        found = self.profile.object_of(entry)
        if entry.role == "constant" and type(found) not in _CONSTANTS:
            raise bad("constant", f"{entry.name} is not a plain constant")
        return found

    # -- steps ---------------------------------------------------------------------------------

    def change(self, operation: int, node: Any, start: int, stop: int) -> None:
        if operation == BUILD:
            self.finish(node)
            return
        target = self.value(node)
        if operation == EXTEND:
            target.extend([self.value(item) for item in node.items[start:stop]])
        elif operation == ADD:
            for item in node.items[start:stop]:
                member = self.value(item)
                self.check_key(target, member)
                target.add(member)
        else:
            pairs = node.pairs if type(node) is Call else node.items
            for at in range(start, stop, 2):
                key = self.value(pairs[at])
                self.check_key(target, key)
                target[key] = self.value(pairs[at + 1])

    def make_tuple(self, node: TupleOf) -> tuple[Any, ...]:
        return tuple([self.value(item) for item in node.items])

    def make_frozenset(self, node: FrozenSetOf) -> frozenset[Any]:
        return self.frozen([self.value(item) for item in node.items])

    def make_buffer(self, node: Buffer) -> Any:
        buffer = self.buffers[node.number]
        if type(buffer) not in (bytes, bytearray, memoryview):
            buffer = memoryview(buffer)
        if node.readonly and not memoryview(buffer).readonly:
            return memoryview(buffer).toreadonly()
        return buffer

    # -- calls ---------------------------------------------------------------------------------

    def entry_of(self, call: Call) -> Entry:
        entry = self.profile.get(call.callee.name)
        if entry is None:
            raise bad("reference", "a name is used that was not judged")
        return entry

    def make_call(self, call: Call) -> Any:
        entry = self.entry_of(call)
        arguments = [
            argument
            if type(argument) is GlobalRef and argument.name in entry.args.get(position, ())
            else self.value(argument)
            for position, argument in enumerate(call.args.items)
        ]
        self.charge(1 + len(arguments))
        made = self.guarded(entry, self.maker(entry, call), arguments)
        if entry.hashable:
            self.hashable.add(type(made))
        return made

    def maker(self, entry: Entry, call: Call) -> Callable[..., Any]:
        if entry.make:
            function = shim(entry.make)
            return lambda *arguments: function(self, entry.name, *arguments)
        own = self.profile.object_of(entry)
        if not isinstance(own, type):
            raise bad("class", f"{entry.name} is not a class")
        if call.new:
            return lambda *arguments: own.__new__(own, *arguments)
        return own

    def guarded(self, entry: Entry, function: Callable[..., Any], arguments: list[Any]) -> Any:
        try:
            made = function(*arguments)
        except SafeserError:
            raise
        except Exception:  # a constructor may raise anything over a peer's arguments
            raise bad(
                "arguments", f"{entry.name} does not accept the arguments it was given"
            ) from None
        if not entry.make and type(made) is not self.profile.object_of(entry):
            raise bad("class", f"{entry.name} made something of another type")
        return made

    def finish(self, call: Call) -> None:
        entry = self.entry_of(call)
        state = self.value(call.state)
        made = self.values[call.index]
        if not entry.state:
            self.set_fields(entry, made, state)
            return
        function = shim(entry.state)
        finished = self.guarded(entry, lambda: function(self, made, state), [])
        self.values[call.index] = finished
        if entry.hashable:
            self.hashable.add(type(finished))

    def set_fields(self, entry: Entry, made: Any, state: Any) -> None:
        """Set plain attributes in the instance's own ``__dict__``, past any code of its class."""
        if type(state) is not dict or hasattr(type(made), "__setstate__"):
            raise bad("state", f"{entry.name} takes no such state")
        held = getattr(made, "__dict__", None)
        for name in state:
            plain = type(name) is str and name.isidentifier() and not name.startswith("__")
            if not plain or (name not in entry.fields and "*" not in entry.fields):
                raise bad("state", f"{entry.name} has no such field")
        if type(held) is not dict:
            raise bad("state", f"{entry.name} keeps no fields")
        held.update(state)


_CONSTANTS = (type(None), bool, int, float, str, bytes, type(...), type(NotImplemented))

_MAKERS: dict[type[Node], Callable[[Builder, Any], Any]] = {
    ListOf: lambda _, __: [],
    SetOf: lambda _, __: set(),
    DictOf: lambda _, __: {},
    ByteArray: lambda _, node: bytearray(node.data),
    TupleOf: Builder.make_tuple,
    FrozenSetOf: Builder.make_frozenset,
    Buffer: Builder.make_buffer,
    Call: Builder.make_call,
    # Looked up where it is used: as a callee it stands for a reviewed function, not for itself.
    GlobalRef: lambda _, __: None,
}
