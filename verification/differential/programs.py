"""Random opcode programs: valid stacks, odd orders, and mutations of bytes and of whole opcodes."""

from __future__ import annotations

import pickletools
import struct
from contextlib import suppress
from itertools import pairwise
from random import Random

__all__ = ["by_opcodes", "mutated", "program"]

_NAMES = (
    "builtins:complex", "builtins:bytearray", "builtins:range", "builtins:slice", "builtins:set",
    "builtins:frozenset", "builtins:list", "builtins:eval", "collections:OrderedDict",
    "collections:deque", "collections:defaultdict", "collections:Counter", "datetime:date",
    "datetime:timedelta", "decimal:Decimal", "fractions:Fraction", "uuid:UUID", "_codecs:encode",
    "copyreg:_reconstructor", "numpy:dtype", "numpy:ndarray", "numpy._core.multiarray:scalar",
    "numpy._core.multiarray:_reconstruct", "builtins:ValueError", "builtins:KeyError",
    "__builtin__:set", "exceptions:ValueError", "os:system", "datetime:date.__new__",
)  # fmt: skip


def program(chance: Random) -> bytes:
    """Return a pickle made opcode by opcode, most of the time one whose stack works out."""
    return _Writer(chance).write()


class _Writer:
    """Keeps count of the stack, so that most programs run to their end."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.protocol = chance.choice((0, 1, 2, 3, 4, 5, 5, 5))
        self.memo = 0

    def write(self) -> bytes:
        body = self.value(self.chance.choice((1, 2, 3, 4)))
        if self.chance.random() < 0.05:
            body = self.value(1) + body
        body += b"."
        head = b"\x80" + bytes([self.protocol]) if self.protocol >= 2 else b""
        if self.protocol >= 4 and self.chance.random() < 0.6:
            size = len(body) + self.chance.choice((0, 0, 0, 0, 0, -1, 1, -2))
            head += b"\x95" + struct.pack("<Q", max(size, 0))
        return head + body

    def value(self, depth: int) -> bytes:
        pick = self.chance.random()
        if depth <= 0 or pick < 0.25:
            made = self.leaf()
        elif pick < 0.6:
            made = self.container(depth)
        elif pick < 0.85:
            made = self.call(depth)
        elif pick < 0.93 and self.memo:
            return self.get()
        else:
            made = self.odd(depth)
        return made + (self.put() if self.chance.random() < 0.4 else b"")

    def put(self) -> bytes:
        index, pick = self.memo, self.chance.randrange(12)
        self.memo += 1
        if pick == 0:
            index = self.chance.choice((0, index + 1, 7, 300))
        if pick < 4 and self.protocol >= 4:
            return b"\x94"
        if pick < 8 and index < 256:
            return b"q" + bytes([index])
        if pick < 10:
            return b"r" + struct.pack("<I", index)
        return b"p" + str(index).encode() + b"\n"

    def get(self) -> bytes:
        index = self.chance.randrange(self.memo + 1)
        pick = self.chance.randrange(3)
        if pick == 0 and index < 256:
            return b"h" + bytes([index])
        if pick == 1:
            return b"j" + struct.pack("<I", index)
        return b"g" + str(index).encode() + b"\n"

    def leaf(self) -> bytes:
        chance = self.chance
        number = chance.choice((0, 1, 127, 128, 255, 256, 65535, 2**31 - 1))
        text = chance.choice(("", "a", "key", "utf-8", "é", "x" * 260))
        raw = text.encode()
        return chance.choice(
            (
                b"N", b"\x88", b"\x89", b"I01\n", b"I00\n", b"I%d\n" % number, b"L%dL\n" % -number,
                b"K" + bytes([number & 255]), b"M" + struct.pack("<H", number & 0xFFFF),
                b"J" + struct.pack("<i", -number),
                b"\x8a" + bytes([2]) + struct.pack("<h", number >> 17), b"\x8a\0",
                b"\x8b" + struct.pack("<I", 3) + b"\1\2\x83", b"F1.5\n", b"Fnan\n",
                b"G" + struct.pack(">d", -0.0), b"S'it\\'s'\n", b'S"\\x41\\n"\n', b"V\\u00e9x\n",
                b"U\3abc", b"T" + struct.pack("<i", 2) + b"ab",
                b"X" + struct.pack("<I", len(raw)) + raw,
                b"\x8c" + bytes([min(len(raw), 255)]) + raw[:255] if len(raw) < 256 else b"N",
                b"\x8d" + struct.pack("<Q", len(raw)) + raw,
                b"C" + bytes([len(raw)]) + raw if len(raw) < 256 else b"N",
                b"B" + struct.pack("<I", len(raw)) + raw,
                b"\x8e" + struct.pack("<Q", len(raw)) + raw,
                b"\x96" + struct.pack("<Q", len(raw)) + raw, b")", b"]", b"}", b"\x8f",
            )
        )  # fmt: skip

    def values(self, count: int, depth: int) -> bytes:
        return b"".join(self.value(depth - 1) for _ in range(count))

    def container(self, depth: int) -> bytes:
        chance, count = self.chance, self.chance.choice((0, 1, 2, 3))
        pick = chance.randrange(12)
        if pick == 0:
            return b"(" + self.values(count, depth) + b"t"
        if pick == 1 and count:
            return self.values(count, depth) + b"\x85\x86\x87"[count - 1 : count]
        if pick == 2:
            return b"(" + self.values(count, depth) + b"l"
        if pick == 3:
            return b"(" + b"".join(self.leaf() + self.value(depth - 1) for _ in range(count)) + b"d"
        if pick == 4:
            return b"(" + self.values(count, 1) + b"\x91"
        if pick == 5:
            return b"\x8f(" + self.values(count, 1) + b"\x90"
        if pick in (6, 7):
            pairs = b"".join(self.leaf() + self.value(depth - 1) for _ in range(count))
            return b"}(" + pairs + b"u"
        if pick == 8:
            return b"}" + b"".join(self.leaf() + self.value(depth - 1) + b"s" for _ in range(count))
        if pick == 9:
            return b"]" + self.put() + self.get() + b"a"
        if pick == 10:
            return b"]" + b"".join(self.value(depth - 1) + b"a" for _ in range(count))
        return b"](" + self.values(count, depth) + b"e"

    def name(self) -> bytes:
        module, _, qualname = self.chance.choice(_NAMES).partition(":")
        if self.protocol >= 4 and self.chance.random() < 0.7:
            parts = (module.encode(), qualname.encode())
            return b"".join(b"\x8c" + bytes([len(part)]) + part for part in parts) + b"\x93"
        return f"c{module}\n{qualname}\n".encode()

    def call(self, depth: int) -> bytes:
        chance = self.chance
        arguments = b"(" + self.values(chance.choice((0, 1, 1, 2, 3)), depth) + b"t"
        pick = chance.randrange(14)
        if pick < 7:
            made = self.name() + arguments + b"R"
        elif pick < 10:
            made = self.name() + arguments + b"\x81"
        elif pick == 10:
            made = self.name() + arguments + b"}\x92"
        elif pick == 11:
            made = b"(" + self.name() + self.values(1, depth) + b"o"
        elif pick == 12:
            module, _, qualname = chance.choice(_NAMES).partition(":")
            made = b"(" + self.values(1, depth) + f"i{module}\n{qualname}\n".encode()
        else:
            made = self.name()
        if chance.random() < 0.15:
            made += self.value(depth - 1) + b"b"
        if chance.random() < 0.1:
            made += self.leaf() + self.value(depth - 1) + b"s"
        if chance.random() < 0.1:
            made += self.value(depth - 1) + b"a"
        return made

    def odd(self, depth: int) -> bytes:
        chance = self.chance
        return chance.choice(
            (
                lambda: self.value(depth - 1) + b"20",
                lambda: self.value(depth - 1) + self.value(depth - 1) + b"0",
                lambda: b"(" + self.values(2, depth) + b"1" + self.leaf(),
                lambda: self.value(depth - 1) + b"2\x86",
                lambda: b"\x97",
                lambda: b"\x97\x98",
                lambda: b"(0" + self.leaf(),
                lambda: b"Ppersistent\n",
                lambda: self.leaf() + b"Q",
                lambda: b"\x82\1",
                lambda: b"\x95" + struct.pack("<Q", 2) + b"K\1",
            )
        )()


def mutated(data: bytes, chance: Random) -> bytes:
    """Return *data* with a few bytes or a few whole opcodes changed."""
    if chance.random() < 0.5:
        return by_opcodes(data, chance)
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at, pick = chance.randrange(len(changed)), chance.randrange(4)
        if pick == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif pick == 1:
            changed[at] = chance.choice(b"(.0123456789NRbceghijlopqrstu}])\x81\x85\x86\x93\x94\x95")
        elif pick == 2 and len(changed) > 1:
            del changed[at : at + chance.randint(1, 3)]
        else:
            changed[at:at] = bytes([chance.randrange(256)])
        changed = changed or bytearray(b".")
    return bytes(changed)


def by_opcodes(data: bytes, chance: Random, donor: bytes = b"") -> bytes:
    """Return *data* with a few opcodes left out, doubled, swapped or taken from *donor*."""
    parts, others = opcodes(data), opcodes(donor)
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(parts))
        pick = chance.randrange(4 if others else 3)
        if pick == 0 and len(parts) > 1:
            del parts[at : at + chance.randint(1, min(4, len(parts) - 1))]
        elif pick == 1:
            parts.insert(at, chance.choice(parts))
        elif pick == 2:
            other = chance.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        elif others:
            start = chance.randrange(len(others))
            parts[at:at] = others[start : start + chance.randint(1, 8)]
    return b"".join(parts)


def opcodes(data: bytes) -> list[bytes]:
    """Cut *data* into whole opcodes as far as pickletools reads it."""
    starts = [0]
    with suppress(Exception):  # a mutant of a mutant; what follows is one part
        starts.extend(at for _, _, at in pickletools.genops(data) if at)
    starts.append(len(data))
    return [data[a:b] for a, b in pairwise(starts) if b > a]
