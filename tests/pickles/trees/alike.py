"""Programs compared step by step, whichever of the two spellings they were read from.

The one rule: two programs are alike if a builder does the same for both, in the same order, with
the same values; where a step stood in its bytes does not matter.
"""

from __future__ import annotations

import math
from typing import Any

from safeser.pickles.nodes import ABSENT, Buffer, ByteArray, Call, GlobalRef, Node, Program

__all__ = ["described"]


def described(program: Program) -> list[Any]:
    """Return the steps of *program* and what it returns, as values that compare."""
    numbers: dict[int, int] = {}
    names: dict[str, int] = {}
    lines: list[Any] = []
    count = 0

    def value(item: Any) -> Any:
        if isinstance(item, Node):
            return "node", numbers[item.index]
        if isinstance(item, float):
            return "float", item.hex(), math.copysign(1, item)
        return type(item).__name__, item

    def made(node: Node) -> Any:
        if isinstance(node, GlobalRef):
            return "name", node.name
        if isinstance(node, Buffer):
            return "buffer", node.number, node.readonly
        if isinstance(node, ByteArray):
            return "bytearray", bytes(node.data)
        if isinstance(node, Call):
            kwargs = None if node.kwargs is None else numbers[node.kwargs.index]
            callee, args = numbers[node.callee.index], numbers[node.args.index]
            return "call", callee, args, node.new, kwargs
        kind = type(node).__name__
        filled = kind in ("TupleOf", "FrozenSetOf")
        return kind, [value(item) for item in node.items] if filled else None

    for step in program.steps:
        if isinstance(step, tuple):
            operation, node, start, stop = step
            held: Any = getattr(node, "state", ABSENT)
            if held is ABSENT or operation != 3:
                of_call = isinstance(node, Call) and operation == 1
                items = (node.pairs if of_call else node.items)[start:stop]
                lines.append((operation, numbers[node.index], [value(item) for item in items]))
            else:
                lines.append((operation, numbers[node.index], value(held)))
        elif isinstance(step, GlobalRef) and step.name in names:
            numbers[step.index] = names[step.name]
        else:
            line = made(step)
            numbers[step.index] = count
            count += 1
            if isinstance(step, GlobalRef):
                names[step.name] = numbers[step.index]
            lines.append(line)
    return [*lines, ("returns", value(program.root))]
