"""pandas scalars of family ``dask``: timestamps, durations, periods, intervals, NA and NaT.

The one rule: counts, units and zones are checked here before pandas sees them.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

import numpy as np

from safeser.families import zones
from safeser.families.plain import Unencodable
from safeser.families.registry import Parts, Typed, registry
from safeser.families.tree import Node
from safeser.values import Limits

__all__ = [
    "UNITS",
    "build_zone",
    "check_zone",
    "describe_freq",
    "describe_zone",
    "offset",
    "register",
]

#: Untyped on purpose: pandas is an extra, and its stubs know less than what is used here.
pd: Any = importlib.import_module("pandas")

UNITS = ("s", "ms", "us", "ns")
_NAT = -(1 << 63)

#: One multiple, one name, perhaps an anchor: all that a plain offset's ``freqstr`` has.
_FREQ = re.compile(r"-?[0-9]{0,9}[A-Za-z]{1,5}(?:-[A-Z]{3}){0,2}\Z", re.ASCII)


def describe_freq(freq: Any) -> str | None:
    """Return the name of an offset that the name alone rebuilds; else raise Unencodable."""
    if freq is None:
        return None
    name = freq.freqstr
    if not _FREQ.match(name) or offset(name) != freq:
        raise Unencodable(freq, "its freq cannot be rebuilt from its name")
    return str(name)


def offset(name: str) -> Any:
    """Return the offset called *name*; ValueError if it is none."""
    if not _FREQ.match(name):
        raise ValueError
    return pd.tseries.frequencies.to_offset(name)


def check_freq(node: Node, name: Any) -> None:
    """Refuse *node* unless *name* is None or could name an offset."""
    if name is not None and (type(name) is not str or not _FREQ.match(name)):
        node.refuse("its freq is not the name of an offset", "families.header")


def describe_zone(zone: Any) -> Any:
    """Return the description of a zone as it may stand in a header: a list."""
    described = zones.describe(zone)
    return None if described is None else list(described)


def check_zone(node: Node, described: Any) -> None:
    """Refuse *node* unless a header describes a zone or none; looks nothing up."""
    if not isinstance(described, list | tuple | None):
        node.refuse("its time zone is not described", "families.time-zone")
    try:
        zones.check(_as_tuple(described))
    except (ValueError, TypeError, OverflowError):
        node.refuse("its time zone is not described", "families.time-zone")


def build_zone(described: Any) -> Any:
    """Return the zone that a checked header describes, or None."""
    return zones.build(_as_tuple(described))


def _as_tuple(described: Any) -> Any:
    return None if described is None else tuple(described)


def _count(node: Node, value: Any) -> None:
    if type(value) is not int or not _NAT < value < 1 << 63:
        node.refuse("its count is out of range", "families.header")


def _unit(node: Node, unit: Any) -> None:
    if type(unit) is not str or unit not in UNITS:
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
    _same(stamp._value == meta["value"] and stamp.unit == meta["unit"])
    return stamp


def _same(right: bool) -> None:
    """Raise what receiving turns into a refusal if pandas read something else than was said."""
    if not right:
        raise ValueError


def _encode_timedelta(x: Any, limits: Limits) -> Parts:
    return Parts({"value": x._value, "unit": x.unit})


def _check_timedelta(node: Node, limits: Limits) -> None:
    value, unit = node.expect("value", "unit")
    _count(node, value)
    _unit(node, unit)


def _decode_timedelta(node: Node, values: list[Any]) -> Any:
    built = pd.Timedelta(np.timedelta64(node.meta["value"], node.meta["unit"]))
    _same(built._value == node.meta["value"] and built.unit == node.meta["unit"])
    return built


def _encode_period(x: Any, limits: Limits) -> Parts:
    return Parts({"value": x.ordinal, "freq": describe_freq(x.freq)})


def _check_period(node: Node, limits: Limits) -> None:
    value, freq = node.expect("value", "freq")
    _count(node, value)
    check_freq(node, freq)
    if freq is None:
        node.refuse("it has no freq", "families.header")


def _decode_period(node: Node, values: list[Any]) -> Any:
    return pd.Period(ordinal=node.meta["value"], freq=offset(node.meta["freq"]))


def _encode_interval(x: Any, limits: Limits) -> Parts:
    return Parts({"closed": x.closed}, (), [(".left", x.left), (".right", x.right)])


def _check_interval(node: Node, limits: Limits) -> None:
    (closed,) = node.expect("closed", children=2)
    if closed not in ("left", "right", "both", "neither"):
        node.refuse("it is closed on no side that pandas knows", "families.header")


def _decode_interval(node: Node, values: list[Any]) -> Any:
    return pd.Interval(*values, closed=node.meta["closed"])


def _check_nothing(node: Node, limits: Limits) -> None:
    node.expect()


def register() -> None:
    """List pandas' scalars; called once, by safeser.families.frames."""
    for name, cls, encode, check, decode in (
        ("Timestamp", pd.Timestamp, _encode_timestamp, _check_timestamp, _decode_timestamp),
        ("Timedelta", pd.Timedelta, _encode_timedelta, _check_timedelta, _decode_timedelta),
        ("Period", pd.Period, _encode_period, _check_period, _decode_period),
        ("Interval", pd.Interval, _encode_interval, _check_interval, _decode_interval),
    ):
        registry.register(Typed(f"pandas:{name}", (cls,), encode, check, decode))
    for name, value in (("NA", pd.NA), ("NaT", pd.NaT)):
        registry.register(
            Typed(
                f"pandas:{name}",
                (type(value),),
                lambda x, limits: Parts({}),
                _check_nothing,
                lambda node, values, value=value: value,  # type: ignore[misc]  # bound per name
            )
        )
