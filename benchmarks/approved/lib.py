"""What stands for an operator's own module: functions that a policy allows by name, and one not."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd


def double(block: Any) -> Any:
    return block * 2


def triple(value: Any) -> Any:
    return value * 3


def with_block_id(block: Any, block_id: Any = None) -> Any:
    return block + sum(block_id or ())


def with_block_info(block: Any, block_info: Any = None) -> Any:
    return block + len(block_info or ())


def chunk_sum(block: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.sum(block, axis=axis, keepdims=keepdims)


def last_sum(block: Any) -> Any:
    return block.sum(axis=-1)


def smooth(block: Any) -> Any:
    return block + 1


def identity(part: Any) -> Any:
    return part


def add_column(part: Any, value: Any) -> Any:
    return part.assign(extra=value)


def row_sum(row: Any) -> Any:
    return row["a"] + row["b"]


def group_sum(group: Any) -> Any:
    return group["a"].sum()


def part_sum(part: Any) -> Any:
    return part.sum(numeric_only=True) if isinstance(part, pd.DataFrame) else part.sum()


def window(values: Any) -> Any:
    return float(np.sum(values))


def make_frame(count: int) -> Any:
    return pd.DataFrame({"a": range(count)})


def unlisted(value: Any) -> Any:
    return value


def assigned(array: Any) -> Any:
    made = array.copy()
    made[0] = 0
    return made


def masked_assigned(array: Any) -> Any:
    made = array.copy()
    made[made > 0.5] = 0
    return made


def with_column(frame: Any) -> Any:
    made = frame.copy()
    made["z"] = made["a"] + 1
    return made


def popped(frame: Any) -> Any:
    made = frame.copy()
    return made.pop("a")


def with_fill_value(array: Any) -> Any:
    da.ma.set_fill_value(array, 7.0)
    return da.ma.filled(array)
