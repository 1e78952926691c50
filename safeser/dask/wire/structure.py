"""The structure of sealed graphs: how much of it one message may hold, and its lists as views.

The one rule: everything of a sealed graph but its definitions is structure. It is small for each
task, and compressed; what it becomes is charged, list by list, before any of it is decompressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from safeser.errors import PayloadError
from safeser.operations import MANY

#: Lists of a sealed graph: heads, trees, definitions, canonical digests, annotations.
LISTS = 5

#: The place of the definitions, which are a user's values: they are not compressed.
DEFINITIONS = 2

#: Bytes of structure of all graphs of one message, decompressed: what lists of any message may
#: have. To decompress and hash them takes 0.2 seconds of a thread, which lets others run meanwhile.
MOST_STRUCTURE = MANY

#: Bytes of structure for each task of a graph, on average, and beside them: arrays and frames of
#: Dask have 120 to 970 for each, and one call on 300,000 futures has 15 MB of keys.
_FOR_TASK, _BESIDE = 1 << 12, 1 << 24

#: The same in elements of heads, which take some forty bytes of memory each once they are read:
#: the tasks of arrays and frames have 10 to 40 of them. Those of ``Limits`` stand beside them.
_ELEMENTS = 1 << 6

#: The same in those of ``Limits`` at most, which is some 100,000 tasks for each.
_MOST_ELEMENTS = 8


def most_structure(tasks: int) -> int:
    """Return how many bytes of structure a graph of so many signed *tasks* may have."""
    return min(MOST_STRUCTURE, _BESIDE + _FOR_TASK * tasks)


def most_elements(tasks: int, elements: int) -> int:
    """Return how many elements the heads of so many signed *tasks* may have."""
    return min(_MOST_ELEMENTS * elements, elements + _ELEMENTS * tasks)


def structure_of(header: Mapping[str, Any], frames: Sequence[Any]) -> int:
    """Return how many bytes of structure a sealed graph says that it has.

    :param header: with the size that each list had before it was compressed; 0 if it was not.
    :param frames: the statement, and then the lists.
    :raises PayloadError: if it says nothing of the kind.
    """
    sizes, lists = header.get("sizes"), frames[1:]
    if type(sizes) is not tuple or not len(sizes) == len(lists) == LISTS:
        raise malformed_graph("its frames")
    if any(type(size) is not int or size < 0 for size in sizes) or sizes[DEFINITIONS]:
        raise malformed_graph("the sizes of its frames")
    taken = [size or memoryview(each).nbytes for size, each in zip(sizes, lists, strict=True)]
    return sum(taken) - taken[DEFINITIONS]


def too_much(what: str, most: int) -> PayloadError:
    """Return the error that refuses more structure than *most* bytes."""
    return PayloadError(
        f"{what} more than {most} bytes of keys, calls and annotations",
        rule="limit.operation",
        fix="Submit fewer tasks at a time, or scatter what they are called with.",
    )


def byte_strings(data: memoryview, count: int, what: str) -> Iterator[memoryview]:
    """Yield the *count* byte strings of which *data*, one msgpack array, consists, as views.

    Nothing is copied, and other threads run in between.

    :param what: is said to be malformed if there are more or fewer.
    :raises PayloadError: if it is anything else.
    """
    at = _begun(data, count, what)
    for _ in range(count):
        tag = data[at] if at < len(data) else 0
        size = _SIZES.get(tag)
        if size is None:
            raise malformed_graph("its lists")
        begin = at + 1 + size
        at = begin + int.from_bytes(data[at + 1 : begin], "big")
        if at > len(data):
            raise malformed_graph("its lists")
        yield data[begin:at]
    if at != len(data):
        raise malformed_graph("its lists")


#: Bytes of the length behind the first byte of a byte string in msgpack, and of an array.
_SIZES = {0xC4: 1, 0xC5: 2, 0xC6: 4}
_ARRAYS = {0xDC: 2, 0xDD: 4}


def _begun(data: memoryview, count: int, what: str) -> int:
    """Return where the first item of *data*, an array of *count*, begins."""
    tag = data[0] if len(data) else 0
    size = 0 if 0x90 <= tag <= 0x9F else _ARRAYS.get(tag)
    if size is None:
        raise malformed_graph("its lists")
    held = tag & 0xF if not size else int.from_bytes(data[1 : 1 + size], "big")
    if held != count:
        raise malformed_graph(what)
    return 1 + size


def malformed_graph(what: str) -> PayloadError:
    """Return the error about *what* of a sealed graph no author writes."""
    return PayloadError(f"a sealed graph is malformed: {what}", rule="sealed.graph")
