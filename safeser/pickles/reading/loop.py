"""Run the loop over a pickle's opcodes, and handle the most frequent ones inline.

The one rule: each opcode is handled in one place, here or in the machine's table, never in both. A
function call takes longer than most opcodes, so the frequent ones share one function and its
variables. Each is charged before it takes memory, as everywhere. MEMOIZE alone has a shortcut,
directly after the opcode that made the value, where it saves a turn of the loop; it is charged
as ever.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NoReturn

from safeser.pickles.nodes import EXTEND, LEAVES, UPDATE, DictOf, ListOf, TupleOf

if TYPE_CHECKING:
    from safeser.pickles.reading.machine import Machine

__all__ = ["HERE", "run"]

_MARK, _EMPTY_TUPLE, _STOP = b"()."
_SHORT_BINBYTES, _BINFLOAT, _BININT, _BININT1, _BININT2, _NONE = b"CGJKMN"
_EMPTY_LIST, _APPENDS, _BINGET, _TUPLE, _SETITEMS, _EMPTY_DICT = b"]ehtu}"
_TUPLE1, _NEWTRUE, _NEWFALSE, _SHORT_BINUNICODE, _MEMOIZE = b"\x85\x88\x89\x8c\x94"
#: What the table must leave to this loop.
HERE: Final = frozenset(b"().CGJKMN]ehtu}\x85\x86\x87\x88\x89\x8c\x94")
_MAKES: Final = frozenset(b"])}t\x85\x86\x87")
_GROWS: Final[dict[int, tuple[Any, int]]] = {
    _APPENDS: (ListOf, EXTEND),
    _SETITEMS: (DictOf, UPDATE),
}
_NUMBERS: Final = {
    _BININT: (4, Struct("<i").unpack_from),
    _BININT2: (2, Struct("<H").unpack_from),
    _BINFLOAT: (8, Struct(">d").unpack_from),
}
_PROTO = 0x80
_ARGUED: Final = frozenset((_BININT1, _BINGET, _SHORT_BINBYTES, _SHORT_BINUNICODE, _PROTO))

_EMPTY = "an opcode finds nothing to work on"
_CUT = "an opcode's argument is cut off"
_NO_FRAME: Final = sys.maxsize

Handler = Callable[["Machine"], Any]


def run(machine: Machine, handlers: Sequence[Handler | None]) -> None:  # noqa: PLR0912, PLR0915 - one loop, see above
    """Read ``machine.data`` to its STOP, or refuse it."""
    data, size = machine.data, len(machine.data)
    memo, held, dense = machine.memo, machine.held, machine.hole < 0
    nodes, steps, marked = machine.nodes, machine.steps, machine.marked
    stack, refs, pos, frame_end = machine.stack, machine.refs, machine.pos, _NO_FRAME
    longest = machine.limits.max_string
    opcode, at, start = 0, pos, 0
    node: Any
    try:
        for _ in machine.turns:
            at = pos
            opcode = data[pos]
            pos += 1
            if opcode == _SHORT_BINUNICODE:
                start = pos + 1
                pos = start + data[pos]
                if pos > size or pos - start > longest:
                    _refuse_string(machine, at, whole=pos <= size)
                try:
                    text = data[start:pos].decode()
                except ValueError:
                    machine.at = at
                    text = machine.decode(data[start:pos], "utf-8", "surrogatepass")
                stack.append(text)
                at = pos
                if data[pos] == _MEMOIZE and dense and pos < frame_end:
                    refs -= 1
                    if refs < 0:
                        _over(machine, at)
                    memo.append(text)
                    pos += 1
            elif opcode == _BINGET:
                node = memo[data[pos]]
                if node is None:
                    machine.at = at
                    node = machine.recalled(data[pos])
                stack.append(node)
                pos += 1
            elif opcode == _BININT1:
                stack.append(data[pos])
                pos += 1
            elif opcode in _MAKES:
                if opcode == _EMPTY_DICT:
                    node = DictOf()
                    node.items = []
                elif opcode == _EMPTY_LIST:
                    node = ListOf()
                    node.items = []
                else:
                    if opcode == _TUPLE:
                        items, stack = stack, marked.pop()
                    else:
                        count = 0 if opcode == _EMPTY_TUPLE else opcode - _TUPLE1 + 1
                        kept = len(stack) - count
                        if kept < 0:
                            _refuse(machine, at, "stack", _EMPTY)
                        items = stack[kept:]
                        del stack[kept:]
                    refs -= len(items)
                    node = TupleOf()
                    node.items = items
                # A container costs some 200 bytes while it is judged: two elements' worth.
                refs -= 2
                if refs < 0:
                    _over(machine, at)
                node.index = len(nodes)
                node.offset = at
                nodes.append(node)
                steps.append(node)
                stack.append(node)
                at = pos
                if data[pos] == _MEMOIZE and dense and pos < frame_end:
                    refs -= 1
                    if refs < 0:
                        _over(machine, at)
                    held[len(memo)] = node
                    memo.append(None)
                    pos += 1
            elif opcode == _MARK:
                refs -= 1
                if refs < 0:
                    _over(machine, at)
                marked.append(stack)
                stack = []
            elif opcode in _GROWS:
                items, stack = stack, marked.pop()
                refs -= len(items)
                if refs < 0:
                    _over(machine, at)
                node = stack[-1]
                kind, operation = _GROWS[opcode]
                if type(node) is not kind or (operation == UPDATE and len(items) & 1):
                    machine.at, machine.stack = at, stack
                    machine.grow(items, pairs=operation == UPDATE)
                elif items:
                    grown = node.items
                    begun = len(grown)
                    grown += items
                    steps.append((operation, node, begun, len(grown)))
            elif opcode in _NUMBERS:
                width, unpack = _NUMBERS[opcode]
                start = pos
                pos += width
                if pos > size:
                    _refuse(machine, at, "truncated", _CUT)
                stack.append(unpack(data, start)[0])
            elif opcode == _MEMOIZE:
                if not dense:
                    _refuse(machine, at, "memo", "the memo is not written once and in order")
                refs -= 1
                if refs < 0:
                    _over(machine, at)
                node = stack[-1]
                if type(node) not in LEAVES:
                    held[len(memo)] = node
                    node = None
                memo.append(node)
            elif opcode == _NONE:
                stack.append(None)
            elif _NEWTRUE <= opcode <= _NEWFALSE:
                stack.append(opcode == _NEWTRUE)
            elif opcode == _SHORT_BINBYTES:
                start = pos + 1
                pos = start + data[pos]
                if pos > size or pos - start > longest:
                    _refuse_string(machine, at, whole=pos <= size)
                stack.append(data[start:pos])
            elif opcode == _STOP:
                machine.at, machine.pos, machine.stack, machine.refs = at, pos, stack, refs
                return
            else:
                machine.at, machine.pos, machine.stack, machine.refs = at, pos, stack, refs
                handler = handlers[opcode]
                if handler is None:
                    machine.refuse("opcode", f"opcode 0x{opcode:02x} is not one of pickle's")
                handler(machine)
                pos, stack, refs = machine.pos, machine.stack, machine.refs
                dense = machine.hole < 0
                frame_end = machine.frame_end or _NO_FRAME
            if pos >= frame_end:
                if pos > frame_end:
                    at = start - 2 if opcode == _SHORT_BINUNICODE else at
                    _refuse(machine, at, "frame", "an opcode crosses the end of its frame")
                frame_end, machine.frame_end = _NO_FRAME, 0
    except IndexError:
        if at >= size:
            _refuse(machine, at, "truncated", "the pickle ends before STOP")
        if opcode in _ARGUED and at + 1 == size:
            _refuse(machine, at, "truncated", _CUT)
        if opcode == _BINGET:
            _refuse(machine, at, "memo", "the memo has no such entry")
        if opcode in (_TUPLE, _APPENDS, _SETITEMS) and not marked:
            _refuse(machine, at, "stack", "an opcode finds no mark")
        _refuse(machine, at, "stack", _EMPTY)
    machine.at = at
    machine.over(
        "opcodes", "there are more opcodes than the allowed elements take", limit="max-memory"
    )


def _refuse(machine: Machine, at: int, rule: str, message: str) -> NoReturn:
    machine.at = at
    machine.refuse(rule, message)


def _over(machine: Machine, at: int) -> NoReturn:
    machine.at = at
    machine.over("max-memory", "the pickle holds more elements than allowed")


def _refuse_string(machine: Machine, at: int, *, whole: bool) -> NoReturn:
    machine.at = at
    if whole:
        machine.over("max-string", "a string is longer than allowed")
    machine.refuse("truncated", _CUT)
