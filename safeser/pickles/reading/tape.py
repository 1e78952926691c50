"""Read the arguments of opcodes from the bytes of a pickle, and check their form and length.

The one rule: an argument is refused if it is truncated, too long, or text that CPython's own
unpicklers read differently from each other.
"""

from __future__ import annotations

import codecs
import pickletools
import re
from math import isinf
from typing import Final, NoReturn

from safeser.errors import PayloadError
from safeser.gate.values import Limits
from safeser.pickles.budget import over

__all__ = ["Tape"]

# CPython's C reader takes INT's "-0" for False, its Python reader for 0.
_DECIMAL = re.compile(rb"(?:0|-?[1-9][0-9]*)\Z")
_LONG = re.compile(rb"(-?(?:0|[1-9][0-9]*))L?\Z")
_INDEX = re.compile(rb"(?:0|[1-9][0-9]{0,9})\Z")
_FLOAT = re.compile(rb"-?(?:[0-9]+(?:\.[0-9]*)?(?:e[+-]?[0-9]{1,4})?|inf|nan)\Z")
# The escapes that Python 2's repr of a string makes; no other escape is valid here.
# Possessive: going back would keep a hundred bytes for each character.
_STRING = re.compile(
    rb"""'(?:[ -&(-\[\]-~]++|\\(?:[\\'"nrt]|x[0-9a-f]{2}))*+'\Z"""
    rb"""|"(?:[ !#-\[\]-~]++|\\(?:[\\'"nrt]|x[0-9a-f]{2}))*+"\Z"""
)

# int() of decimal text is quadratic; CPython's own ceiling is 4,300 digits.
_MAX_DIGITS = 4300
_MAX_FLOAT_TEXT = 64
_MAX_NAME: Final = 1024
#: For error messages only: safeser.pickles.reading.machine alone defines what an opcode does.
_OPCODES: Final = {ord(opcode.code): opcode.name for opcode in pickletools.opcodes}
_NOTHING = "No profile and no limit allows this."
_FIXES = {
    "python-2": "Have the pickle written again by Python 3; nothing here guesses an encoding.",
    "truncated": "The bytes are no whole pickle; have the sender write them again.",
    "frame": "The end is missing, or pickle did not write this; have the sender write it again.",
    "trailing": "One pickle is loaded at a time; cut the rest off, or send it apart.",
    "buffers": "Hand over the buffers that were written with it, in order.",
    "persistent-id": "Pass persistent_load, with the meaning that the writer's persistent_id has.",
}


class Tape:
    """The input of a machine: *pos* is the next byte, *at* the opcode that is being read."""

    def __init__(self, data: bytes, limits: Limits, *, start: int) -> None:
        self.data = data
        self.limits = limits
        self.start = start
        self.pos = start
        self.at = start
        #: Bytes of the longest leaf that was taken here.
        self.longest = 0

    # -- refusing ------------------------------------------------------------------------------

    def refuse(self, rule: str, message: str) -> NoReturn:
        raise PayloadError(
            message,
            rule=f"pickle.{rule}",
            where=_opcode_at(self.data, self.at),
            fix=_FIXES.get(rule, _NOTHING),
        )

    def over(self, rule: str, message: str, *, limit: str = "") -> NoReturn:
        raise over(rule, message, where=_opcode_at(self.data, self.at), limit=limit)

    # -- bytes and lines -----------------------------------------------------------------------

    def take(self, count: int) -> bytes:
        end = self.pos + count
        if end > len(self.data):
            self.refuse("truncated", "an opcode's argument is cut off")
        taken = self.data[self.pos : end]
        self.pos = end
        return taken

    def size_of(self, width: int) -> int:
        size = int.from_bytes(self.take(width), "little")
        if size > len(self.data) - self.pos:
            self.refuse("truncated", "an opcode's argument is cut off")
        if size > self.limits.max_string:
            self.over("max-string", "a string is longer than allowed")
        self.longest = max(self.longest, size)
        return size

    def take_sized(self, width: int) -> bytes:
        return self.take(self.size_of(width))

    def look_sized(self, width: int) -> memoryview:
        """Do as :meth:`take_sized` without a copy; what is built of it will be one."""
        start = self.pos + width
        self.pos = start + self.size_of(width)
        return memoryview(self.data)[start : self.pos]

    def take_line(self, most: int) -> bytes:
        end = self.data.find(b"\n", self.pos, self.pos + most + 1)
        if end < 0:
            self.refuse("truncated", "a line of text has no end, or is too long")
        line = self.data[self.pos : end]
        self.pos = end + 1
        return line

    def take_text(self) -> bytes:
        line = self.take_line(len(self.data))
        if len(line) > self.limits.max_string:
            self.over("max-string", "a string is longer than allowed")
        self.longest = max(self.longest, len(line))
        return line

    # -- numbers -------------------------------------------------------------------------------

    def take_index(self) -> int:
        line = self.take_line(10)
        if not _INDEX.match(line):
            self.refuse("memo", "a memo index is not a plain number")
        return int(line)

    def take_int(self) -> int:
        line = self.take_line(_MAX_DIGITS)
        if line in (b"00", b"01"):
            return line == b"01"
        if not _DECIMAL.match(line):
            self.refuse("text", "an integer is not plain decimal text")
        return self._decimal(line)

    def take_long(self) -> int:
        match = _LONG.match(self.take_line(_MAX_DIGITS))
        if match is None:
            self.refuse("text", "an integer is not plain decimal text")
        return self._decimal(match[1])

    def _decimal(self, text: bytes) -> int:
        value = int(text)
        if value.bit_length() >> 3 >= self.limits.max_int:
            self.over("max-int", "an integer is larger than allowed")
        return value

    def take_long_sized(self, width: int) -> int:
        raw = self.take_sized(width)
        if len(raw) > self.limits.max_int:
            self.over("max-int", "an integer is larger than allowed")
        return int.from_bytes(raw, "little", signed=True)

    def take_float(self) -> float:
        line = self.take_line(_MAX_FLOAT_TEXT)
        if not _FLOAT.match(line):
            self.refuse("text", "a float is not plain decimal text")
        value = float(line)
        if isinf(value) and not line.endswith(b"inf"):
            # The C unpickler refuses it; the Python one reads infinity.
            self.refuse("text", "a float is too large to be one")
        return value

    # -- text ----------------------------------------------------------------------------------

    def decode(self, raw: bytes, codec: str, errors: str = "strict") -> str:
        try:
            return raw.decode(codec, errors)
        except ValueError:
            self.refuse("text", "a string does not decode")

    def take_name(self, codec: str) -> str:
        return self.decode(self.take_line(_MAX_NAME), codec)

    def take_string(self) -> str:
        line = self.take_text()
        if not _STRING.match(line):
            self.refuse("text", "a string is not plain quoted ASCII")
        text = codecs.unicode_escape_decode(line[1:-1])[0]
        if not text.isascii():
            self.refuse_python_2()
        return text

    def refuse_python_2(self) -> NoReturn:
        self.refuse("python-2", "Python 2 wrote this text in an encoding that it does not name")

    def take_unicode(self) -> str:
        # By the function: decode() would look the codec up by its name, and import it.
        try:
            return codecs.raw_unicode_escape_decode(self.take_text())[0]
        except ValueError:
            self.refuse("text", "a string does not decode")


def _opcode_at(data: bytes, offset: int) -> str:
    """Return where in *data* an opcode stands, and its name: ``"byte 12 (REDUCE)"``."""
    if offset >= len(data):
        return f"byte {offset}"
    name = _OPCODES.get(data[offset], f"0x{data[offset]:02x}")
    return f"byte {offset} ({name})"
