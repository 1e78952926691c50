"""Parse pickles of protocols 0 to 5, strictly, into inert nodes.

The one rule: the returned program describes exactly what a stock unpickler would do, or the bytes
are refused. Nothing is imported, called or looked up here, and every count is charged to a budget
before memory is taken for it. Stricter than CPython on purpose: FRAMEs hold whole
opcodes, the memo is dense and written once, PROTO stands first, one value is left at STOP and
nothing follows it. CPython's own readers disagree with each other on each of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import repeat
from operator import length_hint
from typing import Any, Final, NoReturn

from safeser.errors import PayloadError
from safeser.gate.values import Limits
from safeser.pickles.budget import Budget, over
from safeser.pickles.names import canonical, check_name
from safeser.pickles.nodes import (
    ABSENT,
    BUILD,
    Buffer,
    ByteArray,
    Call,
    DictOf,
    FrozenSetOf,
    GlobalRef,
    Node,
    Persistent,
    Program,
    SetOf,
    Step,
    TupleOf,
    children,
    container,
)
from safeser.pickles.reading.loop import Handler
from safeser.pickles.reading.loop import run as loop
from safeser.pickles.reading.stack import Stack

__all__ = ["HANDLERS", "Machine", "read"]

# A persistent id is a name, or a few parts of one.
_MAX_PID = 16
# One tuple of arguments may be handed to any number of calls, each of which judging and building
# walk: of 14 KB, half of them names and half calls, it took a gigabyte. A call that repeats them
# takes five bytes, so what honest objects share is far below this.
_ARGUMENTS_PER_BYTE = 8


def read(
    data: bytes,
    *,
    buffers: int | None,
    limits: Limits,
    budget: Budget | None = None,
    persistent: bool = False,
) -> Program:
    """Parse the pickle *data* into a program, or raise :class:`PayloadError`.

    :param buffers: number of out-of-band buffers at hand; None where that is not known.
    :param budget: what is left for the message that the pickle came in; it is charged.
    :param persistent: whether the caller has a ``persistent_load`` function.
    """
    if len(data) > limits.max_bytes:
        raise over("max-bytes", "the pickle is larger than allowed")
    budget = Budget(limits) if budget is None else budget
    machine = Machine(data, buffers, limits, budget, persistent=persistent)
    # As Budget.reading does, which takes as long as reading a dozen opcodes.
    try:
        program = machine.run()
    finally:
        budget.opcodes = length_hint(machine.turns)
    budget.spend(refs=program.refs, calls=program.calls)
    return program


class Machine(Stack):
    def __init__(
        self,
        data: bytes,
        buffers: int | None,
        limits: Limits,
        budget: Budget,
        *,
        persistent: bool,
        start: int = 0,
    ) -> None:
        super().__init__(data, limits, refs=budget.refs, start=start)
        self.frame_end = 0
        self.protocol = 0
        self.names: dict[tuple[str, str], str] = {}
        self.spelt: set[int] = set()
        self.parts: dict[int, Node] = {}
        self.granted = budget.refs
        self.calls = budget.calls
        self.max_calls = budget.calls
        #: Arguments that calls took, each counted once per call.
        self.arguments = 0
        self.turns = repeat(None, budget.opcodes)
        self.persistent = persistent
        self.buffers = buffers
        self.next_buffer = 0

    # -- the loop ------------------------------------------------------------------------------

    def run(self) -> Program:
        loop(self, HANDLERS)
        if self.pos != len(self.data):
            self.refuse("trailing", "there is data after STOP")
        return self.finish()

    def finish(self) -> Program:
        if self.frame_end not in (0, self.pos):
            self.refuse("frame", "a frame is longer than the pickle")
        if self.marked or len(self.stack) != 1:
            self.refuse("stack", "STOP must find exactly one value and no mark")
        if self.parts:
            # No other node may refer to the nodes that only spell instantiations.
            if held_elsewhere(self.parts, self.nodes, self.stack[0]):
                self.refuse("callee", "what spells an instantiation is used as a value too")
            self.steps = without(self.parts, self.nodes, self.steps)
        return Program(
            self.stack[0],
            self.nodes,
            self.steps,
            self.pos - self.start,
            self.protocol,
            refs=self.granted - self.refs,
            calls=self.max_calls - self.calls,
            spelt=frozenset(self.spelt),
            buffers=self.next_buffer,
            longest=self.longest,
        )

    # -- names and calls -----------------------------------------------------------------------

    def push_global(self, module: str, qualname: str) -> None:
        written = module, qualname
        name = self.names.get(written)
        if name is None:
            if self.protocol < 3:
                module, qualname = canonical(module, qualname)
            try:
                check_name(module, qualname, dotted=self.protocol >= 4, where="")
            except PayloadError as error:
                error.where = f"byte {self.at}"
                raise
            # Kept, so that a long name that is used often takes memory once.
            name = self.names[written] = f"{module}:{qualname}"
        self.push(GlobalRef(name))

    def do_global(self) -> None:
        module = self.take_name("utf-8")
        self.push_global(module, self.take_name("utf-8"))

    def do_stack_global(self) -> None:
        module, qualname = self.pop_two()
        if type(module) is not str or type(qualname) is not str:
            self.refuse("name", "a global is not named by two strings")
        self.push_global(module, qualname)

    def push_call(
        self,
        callee: Any,
        args: Any,
        *,
        new: bool = False,
        old: bool = False,
        base: str = "",
        kwargs: Any = None,
    ) -> None:
        if type(callee) is not GlobalRef and type(callee) is not Call:
            self.refuse("callee", "the called object is not a global")
        if type(args) is not TupleOf:
            self.refuse("arguments", "arguments are not a tuple")
        self.calls -= 1
        if self.calls < 0:
            self.over("max-calls", "the pickle makes more objects by calls than allowed")
        self.arguments += len(args.items) + (0 if kwargs is None else len(kwargs.items))
        if self.arguments > _ARGUMENTS_PER_BYTE * (self.pos - self.start):
            self.refuse("arguments", "calls share more arguments than so few bytes may stand for")
        self.push(Call(callee, args, new=new, old=old, base=base, kwargs=kwargs))

    def do_reduce(self) -> None:
        callee, args = self.pop_two()
        if type(args) is TupleOf:
            if type(callee) is GlobalRef:
                if callee.name == GETATTR and self.push_nested(callee, args):
                    return
                if callee.name == RECONSTRUCTOR and self.push_based(callee, args):
                    return
            elif type(callee) is Call and not args.items and self.push_with_keywords(callee):
                return
        self.push_call(callee, args)

    def push_nested(self, callee: GlobalRef, args: TupleOf) -> bool:
        name = self.nested_name(args.items)
        if name:
            self.push(GlobalRef(name))
            self.spelt.update((callee.index, args.index, args.items[0].index))
        return bool(name)

    def push_based(self, callee: GlobalRef, args: TupleOf) -> bool:
        base = base_of(args.items)
        if base:
            cls, named, content = args.items
            self.push(container(TupleOf, [] if content is None else [content]))
            self.push_call(cls, self.stack.pop(), new=True, base=base)
            self.spelt.update((callee.index, args.index, named.index))
        return bool(base)

    def push_with_keywords(self, partial: Call) -> bool:
        found = keywords(partial)
        if found is not None:
            self.push(container(TupleOf, found.args))
            self.push_call(found.cls, self.stack.pop(), new=True, kwargs=found.kwargs)
            self.spelt.update(name.index for name in found.names)
            self.parts.update((part.index, part) for part in found.parts)
        return found is not None

    def nested_name(self, items: list[Any]) -> str:
        """Return the name that ``getattr(global, "part")`` spells, as pickle writes nested names.

        It is then one name like any other, which a profile has to list whole.
        """
        if len(items) != 2 or type(items[0]) is not GlobalRef or type(items[1]) is not str:
            return ""
        if not items[1].isidentifier():
            # getattr() takes a dot for a part of the name; a global's name would be nested by it.
            self.refuse("name", "an attribute's name is no identifier")
        module, qualname = items[0].module, f"{items[0].qualname}.{items[1]}"
        check_name(module, qualname, dotted=True, where=f"byte {self.at}")
        return f"{module}:{qualname}"

    def do_newobj(self) -> None:
        callee, args = self.pop_two()
        self.push_call(callee, args, new=True)

    def do_newobj_ex(self) -> None:
        kwargs, args, callee = self.pop(), self.pop(), self.pop()
        if type(kwargs) is not DictOf:
            self.refuse("arguments", "keyword arguments are not a dict")
        self.push_call(callee, args, new=True, kwargs=kwargs)

    def do_build(self) -> None:
        target, state = self.pop_two()
        self.stack.append(target)
        if type(target) is not Call:
            # BUILD on a global rewrites it for the whole process; on a container it means nothing.
            self.refuse("build-target", "BUILD applies to an object that no call made")
        if target.state is not ABSENT:
            self.refuse("build-twice", "an object is built twice")
        self.charge(1)
        target.state = state
        self.steps.append((BUILD, target, 0, 0))

    def refuse_extension(self) -> NoReturn:
        self.refuse("extension", "extension codes name objects that no profile can check")

    def push_old_instance(self, callee: Any, items: list[Any]) -> None:
        # Only the call sees this tuple, so it is on no stack and in no memo.
        self.push(container(TupleOf, items))
        args = self.stack.pop()
        self.push_call(callee, args, old=True)

    def do_inst(self) -> None:
        module = self.take_name("ascii")
        self.push_global(module, self.take_name("ascii"))
        callee = self.stack.pop()
        self.push_old_instance(callee, self.pop_mark())

    def do_obj(self) -> None:
        items = self.pop_mark()
        if not items:
            self.refuse("stack", "an opcode finds nothing to work on")
        self.push_old_instance(items[0], items[1:])

    # -- persistent ids ------------------------------------------------------------------------

    def push_persistent(self, pid: Any) -> None:
        if not self.persistent:
            self.refuse("persistent-id", "persistent ids need a persistent_load function")
        self.push(Persistent(pid))

    def do_persid(self) -> None:
        self.push_persistent(self.take_name("ascii"))

    def do_binpersid(self) -> None:
        pid = self.pop()
        self.check_persistent(pid, _MAX_PID)
        self.push_persistent(pid)

    def check_persistent(self, pid: Any, room: int) -> None:
        """Refuse an id that is not text, numbers, listed names, or a tuple of these."""
        if isinstance(pid, TupleOf) and len(pid.items) <= room:
            for item in pid.items:
                self.check_persistent(item, room // 4)
        elif isinstance(pid, Node) and type(pid) is not GlobalRef:
            self.refuse("persistent-id", "a persistent id is not a plain value")

    # -- frames --------------------------------------------------------------------------------

    def do_proto(self) -> None:
        # The loop turns the IndexError of a missing argument into a refusal.
        self.protocol = self.data[self.pos]
        self.pos += 1
        if self.at != self.start or self.protocol > 5:
            self.refuse("protocol", "PROTO must stand first and name a protocol up to 5")

    def do_frame(self) -> None:
        size = int.from_bytes(self.take(8), "little")
        if self.protocol < 4 or self.frame_end or not 0 < size <= len(self.data) - self.pos:
            self.refuse(
                "frame", "a frame is nested, empty, before its time or longer than the rest"
            )
        self.frame_end = self.pos + size

    # -- buffers -------------------------------------------------------------------------------

    def do_next_buffer(self) -> None:
        if self.buffers is not None and self.next_buffer >= self.buffers:
            self.refuse("buffers", "the pickle wants more buffers than came with it")
        self.push(Buffer(self.next_buffer, readonly=False))
        self.next_buffer += 1

    def do_readonly_buffer(self) -> None:
        target = self.pop()
        if type(target) is not Buffer:
            self.refuse("buffers", "READONLY_BUFFER applies to an object that is no buffer")
        self.push(Buffer(target.number, readonly=True))


def _string(width: int) -> Callable[[Machine], None]:
    # Python 2's byte strings; CPython decodes them as ASCII unless told otherwise.
    def push(machine: Machine) -> None:
        raw = machine.take_sized(width)
        if not raw.isascii():
            machine.refuse_python_2()
        machine.stack.append(raw.decode("ascii"))

    return push


def _text(width: int) -> Callable[[Machine], None]:
    def push(machine: Machine) -> None:
        machine.stack.append(machine.decode(machine.take_sized(width), "utf-8", "surrogatepass"))

    return push


def _put(width: int) -> Callable[[Machine], None]:
    return lambda machine: machine.put(int.from_bytes(machine.take(width), "little"))


def _get(width: int) -> Callable[[Machine], None]:
    return lambda machine: machine.get(int.from_bytes(machine.take(width), "little"))


_TABLE: dict[bytes, Handler] = {
    b"\x80": Machine.do_proto,
    b"\x95": Machine.do_frame,
    # marks and the stack
    b"0": Machine.do_pop,
    b"1": Machine.pop_mark,
    b"2": Machine.do_dup,
    # memo
    b"p": lambda machine: machine.put(machine.take_index()),
    b"q": _put(1),
    b"r": _put(4),
    b"g": lambda machine: machine.get(machine.take_index()),
    b"j": _get(4),
    # constants and numbers
    b"I": lambda machine: machine.stack.append(machine.take_int()),
    b"L": lambda machine: machine.stack.append(machine.take_long()),
    b"\x8a": lambda machine: machine.stack.append(machine.take_long_sized(1)),
    b"\x8b": lambda machine: machine.stack.append(machine.take_long_sized(4)),
    b"F": lambda machine: machine.stack.append(machine.take_float()),
    # text and bytes
    b"S": lambda machine: machine.stack.append(machine.take_string()),
    b"T": _string(4),
    b"U": _string(1),
    b"V": lambda machine: machine.stack.append(machine.take_unicode()),
    b"X": _text(4),
    b"\x8d": _text(8),
    b"B": lambda machine: machine.stack.append(machine.take_sized(4)),
    b"\x8e": lambda machine: machine.stack.append(machine.take_sized(8)),
    b"\x96": lambda machine: machine.push(ByteArray(machine.look_sized(8))),
    # containers
    b"l": Machine.do_list,
    b"a": Machine.do_append,
    b"d": Machine.do_dict,
    b"s": Machine.do_setitem,
    b"\x8f": lambda machine: machine.push(container(SetOf, [])),
    b"\x90": Machine.do_additems,
    b"\x91": lambda machine: machine.push(container(FrozenSetOf, machine.pop_mark())),
    # globals, calls, objects
    b"c": Machine.do_global,
    b"\x93": Machine.do_stack_global,
    b"R": Machine.do_reduce,
    b"\x81": Machine.do_newobj,
    b"\x92": Machine.do_newobj_ex,
    b"b": Machine.do_build,
    b"i": Machine.do_inst,
    b"o": Machine.do_obj,
    # ids that a caller resolves
    b"P": Machine.do_persid,
    b"Q": Machine.do_binpersid,
    # buffers
    b"\x97": Machine.do_next_buffer,
    b"\x98": Machine.do_readonly_buffer,
    # refused by name, so that the refusal says why
    b"\x82": Machine.refuse_extension,
    b"\x83": Machine.refuse_extension,
    b"\x84": Machine.refuse_extension,
}

#: By opcode, for the loop.
HANDLERS = tuple(_TABLE.get(bytes([code])) for code in range(256))


# --- recognize what older protocols spell by calls: nested names, and instances without an opcode -
# The one rule: a spelling is exactly what pickle itself writes, and means what the opcode of later
# protocols means. Its parts have no other use.

GETATTR: Final = "builtins:getattr"
RECONSTRUCTOR: Final = "copyreg:_reconstructor"
_PARTIAL = "functools:partial"
# Not dict: SciPy's matrices have a reviewed function for that one.
_BASES = frozenset(f"builtins:{name}" for name in ("float", "int", "list", "str", "tuple"))


def base_of(items: list[Any]) -> str:
    """Return the class whose ``__new__`` ``_reconstructor(class, base, content)`` calls, or ""."""
    if len(items) != 3 or type(items[0]) is not GlobalRef or type(items[1]) is not GlobalRef:
        return ""
    base = items[1].name
    return base if base in _BASES or (base == "builtins:object" and items[2] is None) else ""


@dataclass(frozen=True, slots=True)
class Keywords:
    """An instantiation with keyword arguments, as protocols 2 and 3 spell it.

    :param names: what only names ``functools.partial`` and the class's ``__new__``.
    :param parts: the partial and the tuples that it was made of.
    """

    cls: GlobalRef
    args: list[Any]
    kwargs: DictOf
    names: tuple[GlobalRef, ...]
    parts: tuple[Node, ...]


def keywords(call: Call) -> Keywords | None:
    """Return the instantiation that calling *call*'s result without arguments spells, if any.

    That is ``partial(cls.__new__)``, given the state ``(cls.__new__, (cls, *args), kwargs, None)``.
    """
    state, partial = call.state, call.callee
    if type(partial) is not GlobalRef or partial.name != _PARTIAL or type(state) is not TupleOf:
        return None
    if call.new or call.old or call.items or call.pairs or len(call.args.items) != 1:
        return None
    if len(state.items) != 4 or type(state.items[1]) is not TupleOf or not state.items[1].items:
        return None
    new, given, kwargs, fields = state.items
    cls = given.items[0]
    named = type(cls) is GlobalRef and type(new) is GlobalRef and new.name == f"{cls.name}.__new__"
    if not named or new is not call.args.items[0] or type(kwargs) is not DictOf:
        return None
    if fields is not None:
        return None
    return Keywords(cls, given.items[1:], kwargs, (partial, new), (call, call.args, state, given))


def held_elsewhere(parts: dict[int, Node], nodes: Iterable[Node], root: Any) -> bool:
    """Whether one of *parts*, which only spell an instantiation, is also part of the value."""
    if isinstance(root, Node) and root.index in parts:
        return True
    return any(
        isinstance(child, Node) and child.index in parts
        for node in nodes
        if node.index not in parts
        for child in children(node)
    )


def without(parts: dict[int, Node], nodes: list[Node], steps: list[Step]) -> list[Step]:
    """Return *steps* without those of *parts*, in whose place *nodes* hold nothing from now on."""
    for index, part in parts.items():
        blank = nodes[index] = container(TupleOf, [])
        blank.index, blank.offset = part.index, part.offset
    return [
        step
        for step in steps
        if (step.index if isinstance(step, Node) else step[1].index) not in parts
    ]
