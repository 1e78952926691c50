"""Read NumPy's npy files: a header that is a Python literal, then bytes, or a pickle for objects.

The one rule: a grammar of exactly what NumPy writes parses the header, which is never evaluated,
and sizes are computed from it and checked before they are used.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from safeser.errors import PayloadError
from safeser.inspection.source import cut_off

__all__ = ["MAX_HEAD", "NPY_START", "Npy", "parse_npy"]

NPY_START = b"\x93NUMPY"

_MAX_HEADER = 1 << 16
#: As much of a file as its header can take.
MAX_HEAD = _MAX_HEADER + 12
_MAX_DIMS = 64
_MAX_NESTING = 16
_INT63 = 1 << 63

_TOKEN = re.compile(
    r" *(?:(?P<text>'(?:[^'\\\n]|\\['\\])*+'|\"(?:[^\"\\\n]|\\[\"\\])*+\")"
    r"|(?P<number>(?:0|[1-9][0-9]{0,18})(?![0-9A-Za-z_.]))"
    r"|(?P<word>(?:True|False|None)\b)|(?P<mark>[(){}\[\],:]))"
)
_WORDS = {"True": True, "False": False, "None": None}
_CLOSING = {"(": ")", "[": "]"}
_DTYPE = re.compile(
    r"[<>|=]?(?:(?P<fixed>b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)"
    r"|[Mm]8(?:\[[0-9]{0,9}[A-Za-z]{1,2}\])?)"
    r"|(?P<sized>[SUV])(?P<size>[0-9]{1,9})|(?P<object>O8?))\Z"
)


@dataclass(frozen=True, slots=True)
class Npy:
    """The fields of an array's header, and the place of its elements."""

    shape: tuple[int, ...]
    dtype: str
    objects: bool
    offset: int
    size: int


def parse_npy(head: bytes, size: int) -> Npy:
    """Return the array that a file of *size* bytes, which begin with *head*, holds.

    Elements that are objects are a pickle from ``offset`` on: it is not looked at here.
    """
    if len(head) < 10:
        raise cut_off("the header is cut off", len(head))
    version, width = (head[6], head[7]), 2 if head[6] == 1 else 4
    if version not in ((1, 0), (2, 0), (3, 0)):
        raise _bad("is of an unknown version")
    length, begin = int.from_bytes(head[8 : 8 + width], "little"), 8 + width
    if length > _MAX_HEADER:
        raise _bad("is longer than any that NumPy writes")
    if len(head) < begin + length:
        raise cut_off("the header is cut off", len(head))
    try:
        text = head[begin : begin + length].decode("utf-8" if version[0] == 3 else "latin-1")
    except ValueError:
        raise _bad("does not decode") from None
    if not text.endswith("\n"):
        raise _bad("does not end where it says")
    return _described(_Literal(text[:-1].rstrip(" ")).whole(), begin + length, size)


def _described(header: Any, offset: int, size: int) -> Npy:
    if type(header) is not dict or header.keys() != {"descr", "fortran_order", "shape"}:
        raise _bad("has other fields than descr, fortran_order and shape")
    shape = header["shape"]
    if type(header["fortran_order"]) is not bool:
        raise _bad("has no order")
    itemsize, objects, text = _element(header["descr"], 0)
    count = math.prod(_lengths(shape))
    if math.prod(length for length in shape if length) * max(itemsize, 1) >= _INT63:
        raise _bad("has an impossible shape")
    taken = size - offset if objects else count * itemsize
    if offset + taken > size:
        raise cut_off("the array's elements are cut off", size)
    if offset + taken < size:
        raise PayloadError(
            "there is data after the array's elements",
            rule="inspect.trailing",
            where=f"byte {offset + taken}",
        )
    return Npy(shape, text, objects, offset, taken)


def _lengths(shape: Any) -> tuple[int, ...]:
    if type(shape) is not tuple or len(shape) > _MAX_DIMS:
        raise _bad("has no shape")
    if any(type(length) is not int or length >= _INT63 for length in shape):
        raise _bad("has an impossible shape")
    return shape


def _element(descr: Any, depth: int) -> tuple[int, bool, str]:
    """Return an element's size, whether it holds objects, and its dtype as text."""
    if depth > _MAX_NESTING:
        raise _bad("nests deeper than NumPy's")
    if type(descr) is list:
        parts = [_field(field, depth) for field in descr]
        size = sum(part[0] for part in parts)
        return size, any(part[1] for part in parts), f"record of {len(parts)} fields"
    if type(descr) is tuple and len(descr) == 2:
        size, objects, text = _element(descr[0], depth + 1)
        return size * math.prod(_lengths(descr[1])), objects, text
    match = _DTYPE.match(descr) if type(descr) is str else None
    if match is None:
        raise _bad("has an unknown dtype")
    if match["object"]:
        return 8, True, "object"
    if match["sized"]:
        return int(match["size"]) * (4 if match["sized"] == "U" else 1), False, descr
    digits = re.match(r"[0-9]+", match["fixed"][1:])
    assert digits is not None
    return int(digits[0]), False, descr


def _field(field: Any, depth: int) -> tuple[int, bool, str]:
    if type(field) is not tuple or len(field) not in (2, 3):
        raise _bad("has a field that is none")
    name = field[0]
    names = name if type(name) is tuple and len(name) == 2 else (name,)
    if any(type(part) is not str for part in names):
        raise _bad("has a field without a name")
    size, objects, text = _element(field[1], depth + 1)
    return size * math.prod(_lengths(field[2]) if len(field) == 3 else ()), objects, text


class _Literal:
    """Reads a literal of texts, whole numbers, True, False, None, tuples, lists and dicts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def whole(self) -> Any:
        value = self.value(0)
        if self.text[self.pos :].strip(" "):
            raise _bad("has more than one literal")
        return value

    def token(self) -> re.Match[str]:
        match = _TOKEN.match(self.text, self.pos)
        if match is None:
            raise _bad("is not the literal that NumPy writes")
        self.pos = match.end()
        return match

    def value(self, depth: int) -> Any:
        token = self.token()
        if token["text"]:
            return re.sub(r"\\(.)", r"\1", token["text"][1:-1])
        if token["number"]:
            return int(token["number"])
        if token["word"]:
            return _WORDS[token["word"]]
        if depth > 2 * _MAX_NESTING or token["mark"] not in ("(", "[", "{"):
            raise _bad("is not the literal that NumPy writes")
        if token["mark"] == "{":
            found: dict[str, Any] = {}
            comma = True
            while not self.closes("}"):
                key = self.value(depth + 1) if comma else None
                if type(key) is not str or key in found or not self.closes(":"):
                    raise _bad("is not the literal that NumPy writes")
                found[key] = self.value(depth + 1)
                comma = self.closes(",")
            return found
        return self.sequence(_CLOSING[token["mark"]], depth)

    def sequence(self, closing: str, depth: int) -> Any:
        items: list[Any] = []
        comma = True
        while not self.closes(closing):
            if not comma:
                raise _bad("is not the literal that NumPy writes")
            items.append(self.value(depth + 1))
            comma = self.closes(",")
        if closing == ")" and len(items) == 1 and not comma:
            raise _bad("is not the literal that NumPy writes")
        return tuple(items) if closing == ")" else items

    def closes(self, mark: str) -> bool:
        """Whether *mark* comes next; then it is taken."""
        begin = self.pos
        if self.token()["mark"] == mark:
            return True
        self.pos = begin
        return False


def _bad(message: str) -> PayloadError:
    return PayloadError(
        f"the header of the array {message}",
        rule="inspect.npy",
        fix="Have it written again, by NumPy under Python 3.",
    )
