"""Encode and decode pandas scalars: timestamps, durations, periods, intervals, NA and NaT.

The one rule: counts, units and zones are checked here before pandas receives them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from safeser.families.pandas.internals import pd
from safeser.families.pandas.offsets import (
    OFFSETS,
    build_zone,
    check_offset,
    check_zone,
    describe_zone,
    encode_offset,
    read_period_freq,
    write_period_freq,
)
from safeser.families.pandas.parts import Loaded, Reader, Writer, charged
from safeser.families.registry import Parts, Typed, registry, required, singleton
from safeser.families.tree import Node
from safeser.gate.values import Limits
from safeser.pickles import Budget
from safeser.types import pandas as bounds

__all__ = ["register"]

_NAT = -(1 << 63)


def _count(node: Node, value: Any) -> None:
    if type(value) is not int or not _NAT < value < 1 << 63:
        node.refuse("its count is out of range", "families.header")


def _unit(node: Node, unit: Any) -> None:
    if type(unit) is not str or unit not in bounds.UNITS:
        node.refuse("its unit is unknown", "families.header")


def _encode_timestamp(x: Any, limits: Limits) -> Parts:
    meta = {"value": x._value, "unit": x.unit, "zone": describe_zone(x.tzinfo), "fold": x.fold}
    return Parts(meta)


def _check_timestamp(node: Node, limits: Limits) -> None:
    value, unit, zone, fold = node.expect("value", "unit", "zone", "fold")
    _count(node, value)
    _unit(node, unit)
    check_zone(node, zone)
    if type(fold) is not int or fold not in (0, 1):
        node.refuse("its fold is neither 0 nor 1", "families.header")


def _decode_timestamp(node: Node, values: list[Any]) -> Any:
    meta = node.meta
    stamp = pd.Timestamp(np.datetime64(meta["value"], meta["unit"]))
    zone = build_zone(meta["zone"])
    if zone is not None:
        stamp = stamp.tz_localize("UTC").tz_convert(zone)
    if stamp.fold != meta["fold"]:
        stamp = stamp.replace(fold=meta["fold"])
    required(stamp._value == meta["value"] and stamp.unit == meta["unit"])
    return stamp


def _encode_timedelta(x: Any, limits: Limits) -> Parts:
    return Parts({"value": x._value, "unit": x.unit})


def _check_timedelta(node: Node, limits: Limits) -> None:
    value, unit = node.expect("value", "unit")
    _count(node, value)
    _unit(node, unit)


def _decode_timedelta(node: Node, values: list[Any]) -> Any:
    built = pd.Timedelta(np.timedelta64(node.meta["value"], node.meta["unit"]))
    required(built._value == node.meta["value"] and built.unit == node.meta["unit"])
    return built


def _encode_period(x: Any, limits: Limits) -> Parts:
    writer = Writer(limits)
    return writer.parts({"value": x.ordinal, "freq": write_period_freq(writer, x.freq)})


def _check_period(node: Node, limits: Limits) -> None:
    value, freq = node.expect("value", "freq", children=None)
    _count(node, value)
    reader = Reader(node, limits)
    node.value = read_period_freq(reader, freq)
    reader.finish()


def _decode_period(node: Node, values: list[Any], budget: Budget) -> Any:
    return pd.Period(ordinal=node.meta["value"], freq=node.value(Loaded.of(node, values, budget)))


def _encode_interval(x: Any, limits: Limits) -> Parts:
    bounds.check_interval_end(x.left)
    bounds.check_interval_end(x.right)
    return Parts({"closed": x.closed}, (), [(".left", x.left), (".right", x.right)])


def _check_interval(node: Node, limits: Limits) -> None:
    (closed,) = node.expect("closed", children=2)
    if closed not in bounds.CLOSED:
        node.refuse("it is closed on no side that pandas knows", "families.header")


def _decode_interval(node: Node, values: list[Any]) -> Any:
    for value in values:
        bounds.check_interval_end(value)
    return pd.Interval(*values, closed=node.meta["closed"])


def register() -> None:
    """List pandas' scalars; called once, when the first is needed."""
    for name, cls, encode, check, decode in (
        ("Timestamp", pd.Timestamp, _encode_timestamp, _check_timestamp, _decode_timestamp),
        ("Timedelta", pd.Timedelta, _encode_timedelta, _check_timedelta, _decode_timedelta),
        ("Interval", pd.Interval, _encode_interval, _check_interval, _decode_interval),
    ):
        registry.register(Typed(f"pandas:{name}", (cls,), encode, check, decode))
    kinds = tuple(OFFSETS.values())
    for typed in (
        charged("pandas:Period", (pd.Period,), _encode_period, _check_period, _decode_period),
        charged("pandas:offset", kinds, encode_offset, check_offset),
        singleton("pandas:NA", pd.NA),
        singleton("pandas:NaT", pd.NaT),
    ):
        registry.register(typed)
