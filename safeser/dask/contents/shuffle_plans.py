"""Send as data what Dask's shuffles send as pickles: the plugin of each worker, and the plans.

The one rule: a scheduler names the plugin that a worker runs, and the worker creates it itself;
plans of shuffles are the fields that their classes have, and nothing else.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from functools import cache
from math import isnan, prod
from typing import Any

from distributed.protocol.pickle import dumps
from distributed.shuffle._core import ShuffleRunSpec, ShuffleSpec
from distributed.shuffle._rechunk import ArrayRechunkSpec
from distributed.shuffle._shuffle import DataFrameShuffleSpec
from distributed.shuffle._worker_plugin import ShuffleWorkerPlugin

from safeser import families
from safeser.errors import PayloadError
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import TRANSPORT, Node
from safeser.gate.values import Grant, Limits

__all__ = ["make_plugins", "name_plugins", "read_plan", "write_plan"]

# --- the plugin ----------------------------------------------------------------------------------

#: Stands in place of the plugin's pickle.
_NAME = "distributed.shuffle"


@cache
def _pickle() -> bytes:
    """Return the pickle that the scheduler of this release sends."""
    return bytes(dumps(ShuffleWorkerPlugin()))


def name_plugins(plugins: Any) -> Any:
    """Return the plugins in the reply to a registration, with Dask's own by its name."""
    if not isinstance(plugins, dict):
        return plugins
    return {name: _NAME if data == _pickle() else data for name, data in plugins.items()}


def make_plugins(plugins: Any) -> Any:
    """Return what :func:`name_plugins` returned, with the plugin that the name stands for."""
    if not isinstance(plugins, dict):
        return plugins
    return {
        name: ShuffleWorkerPlugin() if data == _NAME else data for name, data in plugins.items()
    }


# --- plans ---------------------------------------------------------------------------------------

#: What a plan is written in, and read by.
_DATA = Grant(context="", families=("dask", "msgpack"))

#: What a plan names columns by.
_NAMES = (str, int, float, tuple)

#: Ids of shuffles, which Dask makes of a token.
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}\Z")


def write_plan(spec: ShuffleSpec, limits: Limits) -> list[Any]:
    """Return the plan of a shuffle as a header and frames.

    :raises SerializationError: if something in it is no data.
    """
    header, frames = families.serialize(spec, _DATA.families, limits=limits)
    return [header, [bytes(frame) for frame in frames]]


def read_plan(data: Any, limits: Limits) -> ShuffleSpec:
    """Return the plan that :func:`write_plan` wrote.

    :raises PayloadError: if it is none with which a scheduler can place partitions.
    """
    match data:
        case (dict() as header, tuple() as frames) if (
            all(type(each) is bytes for each in frames)
            # Its bytes are charged as they stand: none of them becomes more.
            and header.keys().isdisjoint(TRANSPORT)
        ):
            spec = families.deserialize(header, list(frames), _DATA, limits=limits)
        case _:
            raise _malformed()
    if type(spec) is ArrayRechunkSpec:
        outputs = prod(map(len, spec.new))
    elif type(spec) is DataFrameShuffleSpec:
        outputs = spec.parts_out if type(spec.parts_out) is int else len(spec.parts_out)
    else:
        raise _malformed()
    if outputs > limits.elements:
        raise _malformed()
    return spec


def _is_sound(spec: Any) -> bool:
    """Tell whether the fields of a plan are what Dask's own are."""
    if type(spec) is ShuffleRunSpec:
        return (
            type(spec.spec) in (ArrayRechunkSpec, DataFrameShuffleSpec)
            and _is_count(spec.run_id)
            and isinstance(spec.span_id, str | None)
            and type(spec.worker_for) is dict
            and all(_is_count(part) or _are_counts(part) for part in spec.worker_for)
            and all(type(worker) is str for worker in spec.worker_for.values())
        )
    # Workers name a folder by the id.
    if type(spec.id) is not str or not _ID.match(spec.id) or type(spec.disk) is not bool:
        return False
    if type(spec) is ArrayRechunkSpec:
        axes = (spec.new, spec.old)
        sized = all(type(each) is tuple and all(map(_are_sizes, each)) for each in axes)
        return sized and len(spec.new) == len(spec.old)
    parts = spec.parts_out
    # A range of partitions whose length Python can tell.
    known = (
        type(parts) is range and parts.start >= 0 and parts.step > 0 and parts.stop <= sys.maxsize
    )
    return (
        _is_count(spec.npartitions)
        and spec.npartitions > 0
        and isinstance(spec.column, _NAMES)
        and type(spec.drop_column) is bool
        and (_is_count(parts) or known or _are_counts(parts))
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _are_counts(values: Any) -> bool:
    return type(values) in (tuple, list, set) and all(map(_is_count, values))


def _are_sizes(values: Any) -> bool:
    """Tell whether *values* are the sizes of chunks, of which NaN is one that is not known yet."""
    return type(values) in (tuple, list) and all(
        _is_count(each) or (type(each) is float and isnan(each)) for each in values
    )


def _typed(cls: type) -> Typed:
    """Return how direct instances of *cls*, a dataclass of Dask's, travel: by their fields."""
    names = [field.name for field in dataclasses.fields(cls)]

    def encode(spec: Any, _: Limits) -> Parts:
        return Parts({}, (), [(f".{name}", getattr(spec, name)) for name in names])

    def check(node: Node, _: Limits) -> None:
        if node.meta or node.frames or len(node.children) != len(names):
            node.refuse("its fields are others", "shuffle.plan")

    def decode(_: Node, values: list[Any]) -> Any:
        made: Any = object.__new__(cls)
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)  # the classes are frozen
        if not _is_sound(made):
            raise _malformed()
        return made

    return Typed(f"{cls.__module__}:{cls.__qualname__}", (cls,), encode, check, decode)


for _cls in (ArrayRechunkSpec, DataFrameShuffleSpec, ShuffleRunSpec):
    registry.register(_typed(_cls))


def _malformed() -> PayloadError:
    return PayloadError("the plan of a shuffle is malformed", rule="shuffle.plan")
