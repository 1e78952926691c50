"""The shapes that a field of Dask's protocol may have, for which its handler is known to work.

The one rule: a shape tests plain data, returns a bool, and never raises. Dask's handlers check
little: text in place of a list of keys counts as a key for each letter, and a negative or infinite
number of seconds or bytes enters the sums by which the scheduler decides.

Spelling: ``=word`` (that very text), ``text``, ``text?`` (or None), ``text*`` (a sequence or set),
``key->number`` (a mapping), ``flag|count`` (one of several). ``*`` binds closest, then ``->`` (to
the right), then ``|``, ``?``.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import chain, compress, repeat
from numbers import Integral, Number
from types import MappingProxyType
from typing import Any

__all__ = ["ACTIONS", "ANYTHING", "SURE", "UNLESS_NONE", "Shape", "fields", "meant", "shape"]

#: Tells whether a value has the shape.
Shape = Callable[[Any], bool]

#: Far more than any cluster has of bytes, seconds or tasks, and still a float without rounding.
_MOST = 1 << 53

#: A hundred times a second, and once a day; honest ones are seconds.
_LEAST_INTERVAL, _MOST_INTERVAL = 0.01, 86_400

#: Longer than any real address or status.
_WORD = 1000

#: Longest name of a file that usual file systems take, in bytes.
_FILE = 255

#: Deeper than annotations of tasks nest in practice.
_DEEPEST = 50

#: Longer than any name of a package, and more packages than one environment lists.
_PACKAGE = 200
_PACKAGES = 100
_MOST_PACKAGES = 5000

#: Topics of one event, and workers of one broadcast; a request for all of them names none.
_TOPICS = 64
_WORKERS = 10_000

#: Levels of one event. The answer to ``events`` has a few more around each, and one event that it
#: cannot hold fails it for every client. Any ``limits.max_depth`` of 40 or more holds this.
_EVENT_LEVELS = 32

#: How the names begin that Dask's client gives to collectors, and that no other plugin has.
_COLLECTOR = "task-metadata-"

#: Leases that one worker or client refreshes at a time. For each lease that the scheduler does not
#: know, it logs a line with the semaphore's name: 400 kB of leases were 400 MB of log.
_LEASES = 1000

#: Names of attributes that a dump leaves out: each attribute of each task is looked for among them.
_LEFT_OUT = 100

#: Resources of one worker. With its name and its report they are part of the answer to
#: ``identity``, which every client asks first: with a hundred levels or a million parts that answer
#: could not be written, and no client could connect any more.
_RESOURCES = 1000
_LEVELS = 16
_PARTS = 20_000

#: What workers do for a task. Dask has a colour for each; with another action in the data its
#: reports and task streams draw no task at all.
ACTIONS = frozenset({"compute", "deserialize", "disk-read", "disk-write", "transfer"})

#: What stands in such fields beside what holds others.
_SHORT = (type(None), str, bytes, Number, datetime.date, datetime.timedelta)

#: What holds others there, and with it the types of nearly all else.
_HOLDING = frozenset({dict, tuple, list, set, frozenset})
_SURELY_SMALL = _HOLDING | {type(None), str, bytes, int, float, bool}

#: What separates folders, drives and streams anywhere that Python runs, or ends a name in C.
_NOT_IN_NAMES = frozenset("/\\:\0")

#: What a sequence of many items arrives as, and what plain Python code may hand in.
_MANY = (tuple, list, set, frozenset)

#: The only scheme whose addresses a process on safeser may be told to connect to.
_SCHEME = "safeser://"


def _anything(value: Any) -> bool:
    del value
    return True


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _word(value: Any) -> bool:
    # Servers print names that they are told, of clients and workers first of all.
    return isinstance(value, str) and len(value) <= _WORD and value.isprintable()


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _integer(value: Any) -> bool:
    if value.__class__ is int:  # as nearly all are; to ask for any integer is slow
        return -_MOST <= value <= _MOST
    return isinstance(value, Integral) and not _flag(value) and -_MOST <= int(value) <= _MOST


def _number(value: Any) -> bool:
    # NaN compares as false with everything, and is refused like infinity.
    if value.__class__ is float or value.__class__ is int or isinstance(value, float):
        return bool(-_MOST <= value <= _MOST)
    return _integer(value)


def _amount(value: Any) -> bool:
    if value.__class__ is int or value.__class__ is float:  # as nearly all are
        return bool(0 <= value <= _MOST)
    return _number(value) and value >= 0


def _positive(value: Any) -> bool:
    return _number(value) and value > 0


def _interval(value: Any) -> bool:
    """How often something is done, which takes an event loop all its time if it is too often."""
    return _number(value) and _LEAST_INTERVAL <= value <= _MOST_INTERVAL


def _count(value: Any) -> bool:
    return _integer(value) and value >= 0


def _size(value: Any) -> bool:
    return _integer(value) and value > 0


def _key(value: Any) -> bool:
    if value.__class__ is str:
        return True
    if isinstance(value, tuple):
        return all(map(_key, value))
    return isinstance(value, str | bytes | float | Integral)


def _label(value: Any) -> bool:
    """A key that is no longer than a word: the scheduler logs it once for each lease."""
    return _key(value) and _text_of(value) <= _WORD


def _text_of(key: Any) -> int:
    """Return how many characters the texts of *key* have, and one for each of its other parts."""
    if isinstance(key, tuple):
        return 1 + sum(map(_text_of, key))
    return len(key) if isinstance(key, str | bytes) else 1


def _leases(value: Any) -> bool:
    return isinstance(value, _MANY) and len(value) <= _LEASES and all(map(_key, value))


def _collector(value: Any) -> bool:
    """A name that Dask's client makes for a collector of metadata.

    Dask's scheduler adds the collector in place of any plugin of the same name, among them the
    one by which shuffles notice that a worker is lost.
    """
    return _word(value) and value.startswith(_COLLECTOR)


def _address(value: Any) -> bool:
    if not _word(value):
        return False
    return "://" not in value or value.startswith(_SCHEME)


def _worker(value: Any) -> bool:
    """A worker's address, or the name that it was given, which may be a number."""
    return _address(value) if isinstance(value, str) else _key(value)


def _each_once(value: Any, fits: Shape, most: int) -> bool:
    """Tell whether *value* is a sequence of what *fits*, each named once.

    For each of them Dask's scheduler sends the whole message again, to each client that listens or
    over a connection of its own: a megabyte for a thousand times one name is a gigabyte.
    """
    if not isinstance(value, _MANY) or len(value) > most or not all(map(fits, value)):
        return False
    return len(set(value)) == len(value)


def _topics(value: Any) -> bool:
    return _word(value) or _each_once(value, _word, _TOPICS)


def _workers(value: Any) -> bool:
    return _each_once(value, _worker, _WORKERS)


def _unique(value: Any) -> bool:
    """Keys of which each is named once: all that it stands for is looked up for each."""
    return isinstance(value, _MANY) and _each_once(value, _key, len(value))


def _names(value: Any) -> bool:
    return _each_once(value, _word, _LEFT_OUT)


def _file(value: Any) -> bool:
    """The name of a file as such: joined to a folder, it leads nowhere else.

    An absolute path would take the folder's place, and a step up leave it.
    """
    if not _word(value) or not value.isprintable() or value in ("", ".", ".."):
        return False
    return _NOT_IN_NAMES.isdisjoint(value) and len(value.encode()) <= _FILE


def _bytes(value: Any) -> bool:
    return isinstance(value, bytes)


def _table(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    return {*map(type, value)} <= {str} or all(isinstance(key, str) for key in value)


def _mapping(value: Any) -> bool:
    return isinstance(value, dict)


#: What the scheduler computes with of each worker's report, and places all tasks by. It
#: looks for all of them in each report that comes, and again whenever it looks at all workers: one
#: report without them ends whatever moves values, for good, and leaves a worker that cannot be
#: removed.
_METRICS: Mapping[str, str] = {
    "memory": "amount",
    "spilled_bytes": "spilled",
    "digests_total_since_heartbeat": "key->number",
    "bandwidth": "bandwidth",
}
_SPILLED = ("memory", "disk")


def _rate(value: Any) -> bool:
    """Bytes in a second. Half of the least number above zero is zero, which tasks' sizes are
    divided by; and the scheduler takes means.
    """
    return _number(value) and value >= 1


_BANDWIDTH: Mapping[str, Shape] = {
    "total": _rate,
    "workers": lambda value: _pairs(value, _address),
    "types": lambda value: _pairs(value, _text),
}


def _nothing(value: Any) -> bool:
    """What no honest peer sends: Dask puts it into what it knows of every worker on that host."""
    return value is None


def _path(value: Any) -> bool:
    """Where something is kept in a tree that the scheduler grows to any depth it is told."""
    return isinstance(value, _MANY) and 0 < len(value) <= _DEEPEST and all(map(_key, value))


def _package(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _PACKAGE and value.isprintable()


def _packages(value: Any) -> bool:
    """Names of packages, each of which is looked for in all folders that Python imports from."""
    return isinstance(value, _MANY) and len(value) <= _PACKAGES and all(map(_package, value))


def _versions(value: Any) -> bool:
    """Installed versions: a scheduler compares those of all workers at each registration.

    Anything else there ends each later registration, of others as well.
    """
    if not isinstance(value, dict) or not value.keys() <= {"host", "packages"}:
        return False
    if value and not isinstance(value.get("packages"), dict):
        return False
    return all(
        isinstance(table, dict)
        and len(table) <= _MOST_PACKAGES
        and all(_package(name) and _plain(version) for name, version in table.items())
        for table in value.values()
    )


def _plain(version: Any) -> bool:
    return version is None or _word(version) or _number(version)


def _pairs(value: Any, named: Shape) -> bool:
    """Tell whether *value* maps names to pairs of a bandwidth and how often it was measured."""
    return isinstance(value, dict) and all(
        named(name)
        and isinstance(pair, tuple | list)
        and len(pair) == 2
        and _amount(pair[0])
        and _size(pair[1])
        for name, pair in value.items()
    )


def _bandwidth(value: Any) -> bool:
    return _table(value) and all(
        name in value and fits(value[name]) for name, fits in _BANDWIDTH.items()
    )


def _event(value: Any) -> bool:
    """An event of few levels; the scheduler keeps it, and sends it with all others."""
    level = [value]
    for _ in range(_EVENT_LEVELS + 1):
        level = [part for each in level for part in _held(each)]
        if not level:
            return True
    return False


def _held(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return (*value, *value.values())
    return value if isinstance(value, _MANY) else ()


def _is_small(value: Any) -> bool:
    """Tell whether *value* has few parts, on few levels, and none whose text is far longer."""
    level, parts = [value], 0
    for _ in range(_LEVELS):
        kinds = [*map(type, level)]
        if not _SURELY_SMALL.issuperset(kinds) and not all(map(_is_short, level)):
            return False
        # A report has hundreds of parts, none of which takes a step of its own here.
        containers = [*compress(level, map(_HOLDING.__contains__, kinds))]
        mappings = compress(containers, map(isinstance, containers, repeat(dict)))
        inner = [*chain.from_iterable(containers)]
        inner += chain.from_iterable(map(dict.values, mappings))
        parts += len(inner)
        if parts > _PARTS:
            return False
        if not inner:
            return True
        level = inner
    return False


def _is_short(value: Any) -> bool:
    return type(value) in _SURELY_SMALL or isinstance(value, _SHORT) or _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    """Tell whether that is a number of NumPy, and no array.

    One byte of an array may fill millions of places, and notebooks that list the workers show it.
    """
    kinds = ((kind.__module__, kind.__name__) for kind in type(value).__mro__)
    return ("numpy", "generic") in kinds and not hasattr(value, "__len__")


def _small(value: Any) -> bool:
    return _table(value) and _is_small(value)


def _resources(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and len(value) <= _RESOURCES
        and all(_word(name) and _amount(much) for name, much in value.items())
    )


def _spilled(value: Any) -> bool:
    return _table(value) and all(name in value and _amount(value[name]) for name in _SPILLED)


def _metrics(value: Any) -> bool:
    return _small(value) and all(
        name in value and shape(spelt)(value[name]) for name, spelt in _METRICS.items()
    )


def _extensions(value: Any) -> bool:
    """What extensions add to a heartbeat; what spans do, the scheduler adds to those of clients."""
    if not (isinstance(value, dict) and all(map(_word, value))):
        return False
    spent = value.get("spans", {})
    return all(isinstance(told, dict) for told in value.values()) and all(
        isinstance(what, tuple) and len(what) > 1 and _key(what) and _number(much)
        for what, much in spent.items()
    )


def _spans(value: Any) -> bool:
    """What a task did when: the scheduler adds up the differences."""
    return isinstance(value, tuple | list) and all(map(_span, value))


def _span(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    action = value.get("action")
    known = isinstance(action, str) and action in ACTIONS
    return known and _number(value.get("start")) and _number(value.get("stop"))


_ATOMS: Mapping[str, Shape] = MappingProxyType(
    {
        "any": _anything,
        "text": _text,
        "topics": _topics,
        "event": _event,
        "collector": _collector,
        "label": _label,
        "leases": _leases,
        "word": _word,
        "flag": _flag,
        "integer": _integer,
        "number": _number,
        "amount": _amount,
        "positive": _positive,
        "interval": _interval,
        "count": _count,
        "size": _size,
        "key": _key,
        "address": _address,
        "worker": _worker,
        "workers": _workers,
        "file": _file,
        "bytes": _bytes,
        "table": _table,
        "mapping": _mapping,
        "metrics": _metrics,
        "bandwidth": _bandwidth,
        "spilled": _spilled,
        "extensions": _extensions,
        "nothing": _nothing,
        "unique": _unique,
        "names": _names,
        "small": _small,
        "resources": _resources,
        "packages": _packages,
        "path": _path,
        "versions": _versions,
        "spans": _spans,
    }
)

#: What to write instead, where a shape is narrower than the type that Dask documents.
_MEANT: Mapping[Shape, str] = MappingProxyType(
    {
        _topics: f"Name a topic, or up to {_TOPICS} different ones.",
        _event: f"Log data of at most {_EVENT_LEVELS} levels.",
        _collector: "Use 'with get_task_metadata()', which makes a name of its own.",
        _leases: f"Refresh at most {_LEASES} leases at a time.",
        _label: f"Use a name of at most {_WORD} characters.",
        _file: "Name a file without any folder: it is written to the folder of its server.",
        _address: f"Name an address that begins with {_SCHEME}.",
    }
)

#: The shape of a field whose content something else decides on.
ANYTHING: Shape = _anything

#: Classes of plain values of which each has the shape, which need not be asked then. Those of
#: optional shapes are added as they are made.
SURE: dict[Shape, frozenset[type]] = {
    _text: frozenset({str}),
    _key: frozenset({str, bytes, int, float, bool}),
    _flag: frozenset({bool}),
    _bytes: frozenset({bytes}),
    _mapping: frozenset({dict}),
}

#: What each optional shape asks of a value that is not None.
UNLESS_NONE: dict[Shape, Shape] = {}


@lru_cache(maxsize=256)  # the table spells fewer
def shape(spelt: str) -> Shape:
    """Return the shape that *spelt* stands for; KeyError for one that nothing stands for."""
    if spelt.endswith("?"):
        inner = shape(spelt.removesuffix("?"))
        optional: Shape = lambda value: value is None or inner(value)  # noqa: E731 - as the others
        SURE[optional] = SURE.get(inner, frozenset()) | {type(None)}
        UNLESS_NONE[optional] = inner
        return optional
    if "|" in spelt:
        several = [shape(one) for one in spelt.split("|")]
        return lambda value: any(fits(value) for fits in several)
    if spelt.startswith("="):
        word = spelt.removeprefix("=")
        return lambda value: value.__class__ is str and value == word
    key, arrow, held = spelt.partition("->")
    if arrow:
        name, content = shape(key), shape(held)
        return lambda value: (
            isinstance(value, dict) and all(name(k) and content(v) for k, v in value.items())
        )
    if spelt.endswith("*"):
        item = shape(spelt.removesuffix("*"))
        return lambda value: isinstance(value, _MANY) and all(map(item, value))
    return _ATOMS[spelt]


def meant(fits: Shape) -> str | None:
    """Return what to write where *fits* was False, if it is more than Dask's documentation has."""
    return _MEANT.get(fits)


def fields(spelt: Iterable[str]) -> dict[str, Shape]:
    """Return the fields that *spelt* lists as ``name:shape``."""
    pairs = (one.partition(":") for one in spelt)
    return {name: shape(content) for name, _, content in pairs}
