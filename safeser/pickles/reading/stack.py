"""Hold the state of the pickle machine: its stack, marks and memo, and the containers it fills.

The one rule: every addition is charged before it takes memory, and only containers that were made
in this load grow. The memo is dense and written once.
"""

from __future__ import annotations

from typing import Any

from safeser.gate.values import Limits
from safeser.pickles.nodes import (
    ABSENT,
    ADD,
    EXTEND,
    LEAVES,
    UPDATE,
    Call,
    DictOf,
    ListOf,
    Node,
    SetOf,
    Step,
    container,
)
from safeser.pickles.reading.tape import Tape

__all__ = ["Stack"]


class Stack(Tape):
    """A tape, and the state that was built from it so far.

    :param refs: elements that are left to take.
    """

    def __init__(self, data: bytes, limits: Limits, *, refs: int, start: int) -> None:
        super().__init__(data, limits, start=start)
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        #: By number; None for what is *held*, and at the *hole*. Leaves alone are found quickly.
        self.memo: list[Any] = []
        self.held: dict[int, Node] = {}
        #: The one number that was left out so far, or -1.
        self.hole = -1
        self.nodes: list[Node] = []
        self.steps: list[Step] = []
        self.refs = refs

    # -- budgets and the stack -----------------------------------------------------------------

    def charge(self, count: int) -> None:
        self.refs -= count
        if self.refs < 0:
            self.over("max-memory", "the pickle holds more elements than allowed")

    def pop(self) -> Any:
        if not self.stack:
            self.refuse("stack", "an opcode finds nothing to work on")
        return self.stack.pop()

    def pop_two(self) -> list[Any]:
        stack = self.stack
        if len(stack) < 2:
            self.refuse("stack", "an opcode finds nothing to work on")
        two = stack[-2:]
        del stack[-2:]
        return two

    def pop_mark(self) -> list[Any]:
        if not self.marked:
            self.refuse("stack", "an opcode finds no mark")
        items = self.stack
        self.stack = self.marked.pop()
        self.charge(len(items))
        return items

    def top(self) -> Any:
        if not self.stack:
            self.refuse("stack", "an opcode finds nothing to work on")
        return self.stack[-1]

    def push(self, node: Node) -> None:
        # A container costs some 200 bytes while it is judged: two elements' worth.
        self.charge(2)
        node.index = len(self.nodes)
        node.offset = self.at
        self.nodes.append(node)
        self.steps.append(node)
        self.stack.append(node)

    def do_pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.pop_mark()

    def do_dup(self) -> None:
        self.stack.append(self.top())

    # -- the memo ------------------------------------------------------------------------------

    def put(self, index: int) -> None:
        # Pickles number their memo upwards from 0 or, in Python 2, 1. A higher index would take
        # memory for nothing in CPython; a second write is how scanners are shown another name.
        size = len(self.memo)
        if index > size + (self.hole < 0) or (index < size and index != self.hole):
            self.refuse("memo", "the memo is not written once and in order")
        self.charge(1)
        top = self.top()
        kept = top if type(top) in LEAVES else None
        if kept is not top:
            self.held[index] = top
        if index == self.hole:
            self.hole = -1
            self.memo[index] = kept
            return
        if index > size:
            self.hole = size
            self.memo.append(None)
        self.memo.append(kept)

    def get(self, index: int) -> None:
        if index >= len(self.memo):
            self.refuse("memo", "the memo has no such entry")
        found = self.memo[index]
        self.stack.append(self.recalled(index) if found is None else found)

    def recalled(self, index: int) -> Any:
        """Return what is in the memo at *index*, where that is no leaf, or None, or nothing."""
        if index == self.hole:
            self.refuse("memo", "the memo has no such entry")
        return self.held.get(index)

    # -- containers ----------------------------------------------------------------------------

    def grow(self, items: list[Any], *, pairs: bool) -> None:
        """Hand *items* to the container on top, which must have been made in this load."""
        target = self.top()
        if not items and type(target) is (DictOf if pairs else ListOf):
            return
        if pairs and len(items) % 2:
            self.refuse("stack", "a key has no value")
        # No elements for another type: the C reader does nothing, the Python one calls a method.
        if type(target) is Call and items:
            if target.state is not ABSENT:
                self.refuse("build-order", "an object changes after it was built")
            held = self.filled(target, pairs=pairs)
        elif type(target) is (DictOf if pairs else ListOf):
            held = target.items
        else:
            self.refuse("grow-target", "elements are added to something that cannot take them")
        self.note(UPDATE if pairs else EXTEND, target, held, items)

    def filled(self, call: Call, *, pairs: bool) -> list[Any]:
        """Return the list of the elements that are added to *call*'s result."""
        held = call.pairs if pairs else call.items
        if not held:
            held = []
            if pairs:
                call.pairs = held
            else:
                call.items = held
        return held

    def note(self, operation: int, target: Node, held: list[Any], items: list[Any]) -> None:
        start = len(held)
        held.extend(items)
        self.steps.append((operation, target, start, len(held)))

    def do_append(self) -> None:
        self.charge(2)
        self.grow([self.pop()], pairs=False)

    def do_setitem(self) -> None:
        self.charge(3)
        self.grow(self.pop_two(), pairs=True)

    def do_additems(self) -> None:
        items, target = self.pop_mark(), self.top()
        if type(target) is not SetOf:
            self.refuse("grow-target", "elements are added to something that cannot take them")
        self.note(ADD, target, target.items, items)

    def do_dict(self) -> None:
        items = self.pop_mark()
        self.push(container(DictOf, []))
        self.grow(items, pairs=True)

    def do_list(self) -> None:
        items = self.pop_mark()
        self.push(container(ListOf, []))
        self.grow(items, pairs=False)
