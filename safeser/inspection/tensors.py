"""Check the tensors in a PyTorch file's pickle against the storages in the file.

The one rule: a tensor is a view of a storage, a storage is a record of the file, and neither may
extend beyond the end of its source. Nothing of PyTorch is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safeser.errors import PayloadError
from safeser.inspection.lists import dtypes, storages
from safeser.pickles.nodes import (
    ABSENT,
    Call,
    DictOf,
    GlobalRef,
    Node,
    Persistent,
    Program,
    TupleOf,
)

__all__ = ["check_tensors", "storages_of"]

# With how many arguments: storage, place, shape and strides; then whether it has gradients, and
# hooks; then a dtype of its own. The last two may have one more, about the tensor's flags.
_REBUILDS = {
    "torch._utils:_rebuild_tensor": (4,),
    "torch._utils:_rebuild_tensor_v2": (6, 7),
    "torch._utils:_rebuild_tensor_v3": (7, 8),
}
_TYPED = "torch._utils:_rebuild_tensor_v3"
_ORDERED = "collections:OrderedDict"
_MAX_DIMS = 64
_INT63 = 1 << 63


def storages_of(program: Program, *, legacy: bool = False) -> Mapping[str, tuple[int, int]]:
    """Return the storages that *program* names, by key: elements, and bytes of each.

    :param legacy: the ids have a sixth part, which describes views.
    """
    found: dict[str, tuple[str, int]] = {}
    sizes: dict[str, tuple[int, int]] = {}
    for node in program.nodes:
        if isinstance(node, Persistent):
            key, kind, count = _storage(node, legacy=legacy)
            if found.setdefault(key, (kind, count)) != (kind, count):
                raise _bad("names one storage with two types or sizes", node)
            sizes[key] = count, storages()[kind]
    return sizes


def _storage(node: Persistent, *, legacy: bool) -> tuple[str, str, int]:
    """Return key, type and number of elements of the storage that *node* stands for."""
    parts = node.pid.items if type(node.pid) is TupleOf else []
    if len(parts) != (6 if legacy else 5) or parts[0] != "storage":
        raise _bad("has a persistent id that names no storage", node)
    kind, key, location, count = parts[1:5]
    if type(kind) is not GlobalRef or kind.name not in storages():
        raise _bad("names a storage of an unknown type", node)
    if type(key) is not str or type(location) is not str or type(count) is not int:
        raise _bad("names a storage without key, place and size", node)
    if not 0 <= count < _INT63 or (legacy and parts[5] is not None):
        raise _bad("names a storage of an impossible size, or a view of one", node)
    return key, kind.name, count


def check_tensors(program: Program, *, legacy: bool = False) -> None:
    """Refuse tensors that reach past their storage."""
    for node in program.nodes:
        if not isinstance(node, Call) or not isinstance(node.callee, GlobalRef):
            continue
        name = node.callee.name
        if name in _REBUILDS:
            _check_tensor(node, name, legacy=legacy)
        elif name == _ORDERED and node.state is not ABSENT:
            state = node.state.items if type(node.state) is DictOf else []
            # What state_dict() leaves on its result, and nothing by which it would do more.
            if state[::2] != ["_metadata"]:
                raise _bad("gives a dict other fields than _metadata", node)


def _check_tensor(node: Call, name: str, *, legacy: bool) -> None:
    args = node.args.items
    if len(args) not in _REBUILDS[name] or type(args[0]) is not Persistent:
        raise _bad("makes a tensor of an object that is no storage", node)
    _, kind, elements = _storage(args[0], legacy=legacy)
    begin, shape, strides = args[1:4]
    if type(begin) is not int or not 0 <= begin < _INT63:
        raise _bad("makes a tensor with an invalid offset", node)
    lengths, steps = _numbers(shape, node), _numbers(strides, node)
    if len(lengths) != len(steps):
        raise _bad("makes a tensor with more lengths than strides, or fewer", node)
    if name == _TYPED:
        dtype = args[6].name if type(args[6]) is GlobalRef else ""
        if dtype not in dtypes():
            raise _bad("makes a tensor of an unknown dtype", node)
        elements = elements * storages()[kind] // dtypes()[dtype]
    # The last element that it reaches; of none there is nothing to reach.
    span = sum((length - 1) * step for length, step in zip(lengths, steps, strict=True)) + 1
    if begin + (span if all(lengths) else 0) > elements:
        raise _bad("makes a tensor that reaches past its storage", node)


def _numbers(value: Any, node: Node) -> list[int]:
    # torch.Size is a tuple of its own kind.
    if isinstance(value, Call) and isinstance(value.callee, GlobalRef):
        held = value.args.items if value.callee.name == "torch:Size" else []
        value = held[0] if len(held) == 1 else None
    items = value.items if type(value) is TupleOf else None
    if items is None or len(items) > _MAX_DIMS:
        raise _bad("makes a tensor without a shape", node)
    if any(type(item) is not int or not 0 <= item < _INT63 for item in items):
        raise _bad("makes a tensor with an impossible shape", node)
    return items


def _bad(message: str, node: Node) -> PayloadError:
    return PayloadError(
        f"the file {message}", rule="inspect.torch", where=f"byte {node.offset} of its pickle"
    )
