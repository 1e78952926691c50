"""Stream elements that Dask handles in place of refused ones, so that no future waits for ever.

The one rule: a substitute is made here from plain text, and it fails exactly the task or future
that the refused element was about.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from types import ModuleType
from typing import Any, NoReturn

from dask._task_spec import Task
from dask.utils import typename

from safeser.errors import PolicyDenied, SafeserError
from safeser.families.errors.failures import STATE
from safeser.gate.refusals import shortened
from safeser.operations import Server

#: Without these, up to the last, the scheduler does not know which task a report is of.
REPORTED = ("key", "run_id", "stimulus_id", "worker")

#: The longest message of a refusal that a substitute carries.
_TEXT = 2000


def remote_type(name: str) -> type:
    """Return a class that is nothing but a name: what a future's repr shows as its type."""
    module, _, qualname = name.replace(":", ".").rpartition(".")
    made = type("remote", (), {"__module__": module or "builtins"})
    made.__name__ = made.__qualname__ = qualname or "object"
    return made


def known_type(name: str) -> type | None:
    """Return the class that Dask calls *name*, if this process has it already; imports nothing.

    Only for names from peers whose code runs here anyway: what the user of a future does may depend
    on its type.
    """
    module, _, short = name.rpartition(".")
    holder = sys.modules.get(module or "builtins")
    # sys.modules holds None for a module that may not be imported, and may hold any other object.
    found = vars(holder).get(short) if isinstance(holder, ModuleType) else None
    return found if isinstance(found, type) and typename(found) == name else None


@lru_cache(maxsize=256)
def shown_type(name: str) -> type:
    """Return what :func:`remote_type` makes, the same for many results.

    A class for each result would take more time and memory than the result.
    """
    return remote_type(name)


class NamedType:
    """Pickles, in this process and for it alone, as what :func:`shown_type` returns.

    :param known: as what :func:`known_type` finds, instead.
    """

    def __init__(self, name: str, *, known: bool = False) -> None:
        self._name = name
        self._found_by = known_type if known else shown_type

    def __reduce__(self) -> tuple[Any, ...]:
        return (self._found_by, (self._name,))


#: What a worker cannot do without of a task whose own fields were refused.
_BARE_TASK: Mapping[str, Any] = {
    "run_id": 0,
    "stimulus_id": "safeser-refused",
    "who_has": {},
    "nbytes": {},
    "priority": (0,),
    "resource_restrictions": {},
    "actor": False,
    "annotations": {},
    "span_id": None,
}


def refused_task(message: str, **state: str) -> NoReturn:
    """Run on a worker in place of a task that was refused there; raises the refusal.

    :param state: what the refusal says beside its *message*.
    """
    raise PolicyDenied(message, **state)


def for_element(
    server: Server | None, element: dict[str, Any], error: SafeserError
) -> dict[str, Any] | None:
    """Return an element that fails what *element* was about, or None to leave it out."""
    name, key = element.get("op"), element.get("key")
    if not isinstance(key, str | tuple | bytes | int):
        return None
    if server is Server.WORKER and name == "compute-task":
        state = {name: getattr(error, name) for name in STATE}
        task = Task(key, refused_task, shortened(error.message, _TEXT), **state)
        plain = {k: v for k, v in element.items() if k != "run_spec" and is_plain(v)}
        return {**_BARE_TASK, **plain, "run_spec": task}
    if server is Server.SCHEDULER and name == "task-finished" and error.where == "type":
        # The result exists; only the name of its type was refused.
        return {k: v for k, v in element.items() if is_plain(v)} | {"type": None}
    if server is Server.CLIENT and name == "key-in-memory" and _is_of_a_field(error):
        return {"op": name, "key": key, "type": None}
    if server is Server.CLIENT and name in ("task-erred", "key-in-memory"):
        return {"op": "task-erred", "key": key, "exception": error, "traceback": None}
    return None


def _is_of_a_field(error: SafeserError) -> bool:
    """Tell whether *error* refuses a field that a client can do without, and not its element."""
    return error.where == "type" or error.rule == "operation.unknown-field"


def failed_report(kept: dict[str, Any], failure: Any, text: str) -> dict[str, Any] | None:
    """Return a worker's report of a failed task, or None if *kept* does not name the task.

    :param kept: its fields of :data:`REPORTED`.
    :param failure: why it failed, as a payload, which is passed on unopened, and as *text*.
    """
    if any(name not in kept for name in REPORTED[:-1]):
        return None
    said = {"exception": failure, "exception_text": text}
    unsaid: dict[str, Any] = {
        "traceback": None,
        "traceback_text": "",
        "startstops": [],
        "thread": None,
    }
    return {"op": "task-erred", "status": "error", **kept, **said, **unsaid}


def is_plain(value: Any) -> bool:
    """Tell whether *value* holds nothing but plain data: no reference, no object of a peer."""
    if isinstance(value, dict):
        return all(is_plain(k) and is_plain(v) for k, v in value.items())
    if isinstance(value, tuple | set):
        return all(is_plain(item) for item in value)
    return isinstance(value, str | bytes | int | float | bool | None)
