"""Name pickle's opcodes in error messages.

The one rule: the names are for people. :mod:`safeser.pickles.reading.machine` alone defines what an
opcode does.
"""

from __future__ import annotations

__all__ = ["opcode_at"]

_NAMES = {
    0x80: "PROTO",
    0x95: "FRAME",
    ord("("): "MARK",
    ord("."): "STOP",
    ord("0"): "POP",
    ord("1"): "POP_MARK",
    ord("2"): "DUP",
    ord("p"): "PUT",
    ord("q"): "BINPUT",
    ord("r"): "LONG_BINPUT",
    0x94: "MEMOIZE",
    ord("g"): "GET",
    ord("h"): "BINGET",
    ord("j"): "LONG_BINGET",
    ord("N"): "NONE",
    0x88: "NEWTRUE",
    0x89: "NEWFALSE",
    ord("I"): "INT",
    ord("J"): "BININT",
    ord("K"): "BININT1",
    ord("M"): "BININT2",
    ord("L"): "LONG",
    0x8A: "LONG1",
    0x8B: "LONG4",
    ord("F"): "FLOAT",
    ord("G"): "BINFLOAT",
    ord("S"): "STRING",
    ord("T"): "BINSTRING",
    ord("U"): "SHORT_BINSTRING",
    ord("V"): "UNICODE",
    ord("X"): "BINUNICODE",
    0x8C: "SHORT_BINUNICODE",
    0x8D: "BINUNICODE8",
    ord("B"): "BINBYTES",
    ord("C"): "SHORT_BINBYTES",
    0x8E: "BINBYTES8",
    0x96: "BYTEARRAY8",
    ord(")"): "EMPTY_TUPLE",
    ord("t"): "TUPLE",
    0x85: "TUPLE1",
    0x86: "TUPLE2",
    0x87: "TUPLE3",
    ord("]"): "EMPTY_LIST",
    ord("l"): "LIST",
    ord("a"): "APPEND",
    ord("e"): "APPENDS",
    ord("}"): "EMPTY_DICT",
    ord("d"): "DICT",
    ord("s"): "SETITEM",
    ord("u"): "SETITEMS",
    0x8F: "EMPTY_SET",
    0x90: "ADDITEMS",
    0x91: "FROZENSET",
    ord("c"): "GLOBAL",
    0x93: "STACK_GLOBAL",
    ord("R"): "REDUCE",
    0x81: "NEWOBJ",
    0x92: "NEWOBJ_EX",
    ord("b"): "BUILD",
    ord("i"): "INST",
    ord("o"): "OBJ",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    ord("P"): "PERSID",
    ord("Q"): "BINPERSID",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}


def opcode_at(data: bytes, offset: int) -> str:
    """Return where in *data* an opcode stands, and its name: ``"byte 12 (REDUCE)"``."""
    if offset >= len(data):
        return f"byte {offset}"
    name = _NAMES.get(data[offset], f"0x{data[offset]:02x}")
    return f"byte {offset} ({name})"
