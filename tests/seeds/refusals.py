"""The refusals that a new user meets, each from a real call; ``refusals.txt`` has their texts.

``python -m tests.seeds.refusals`` writes that file anew. Read what changed as a new user would.
"""

from __future__ import annotations

import contextvars
import enum
import os
import pickle
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import safeser
from safeser import pickles
from safeser.errors import SafeserError
from safeser.families.errors.unsent import unsent
from safeser.policy import Policy, explain
from safeser.values import Context, Kind, Limits
from tests.conftest import Doors

FILE = Path(__file__).with_suffix(".txt")

POLICY = """
safeser: 1
name: lab
revision: 7
principals: {ann: {}, bob: {}, scheduler: {}, worker: {}, cy: {}}
contexts:
  - name: ann-submits
    sender: ann
    recipient: scheduler
    submission: sealed
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations: {grant: [basic]}
  - name: bob-looks
    sender: bob
    recipient: scheduler
    operations: {grant: [basic]}
  - name: results
    sender: [worker, scheduler]
    recipient: [ann, bob]
    kinds: [admin, data]
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    pickle: {profile: [data]}
    operations: {grant: [basic]}
  - name: reports
    sender: worker
    recipient: scheduler
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations: {grant: [basic]}
  - name: strangers
    sender: unknown
    recipient: ann
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
"""

LOCK = threading.Lock()


class Point:
    def __init__(self, x: int = 1) -> None:
        self.x = x


class Shape:
    def __init__(self) -> None:
        self.points = [Point()]


class Colour(enum.Enum):
    RED = 1


class Held:
    def __init__(self) -> None:
        self.lock = LOCK


def own_function(x: Any) -> Any:
    return x


class _Calls:
    """Pickles as a call of *function*."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.made = function, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.made


def _policy() -> Policy:
    return Policy.parse(POLICY)


def _received(value: Any, sender: str, recipient: str, families: list[str] | None = None) -> Any:
    """Open *value*, written by any family, as *recipient* has it from *sender*."""
    header, frames = safeser.serialize(value, ["dask", "msgpack", "pickle", "cloudpickle"], "raise")
    context = Context(sender, recipient, transport="safeser")
    asked = families or ["dask", "msgpack", "pickle", "cloudpickle"]
    return safeser.deserialize(header, frames, asked, context=context, policy=_policy())


def _asked(sender: str, kind: Kind, operation: str) -> None:
    """Ask for *operation* on a connection with the scheduler."""
    doors = Doors()
    near, _ = doors.shake(doors.channel(sender, POLICY), doors.channel("scheduler", POLICY))
    near.permit_operation(near.outbound(kind, operation))


def _explained(context: Context, family: str, **options: Any) -> None:
    refusal = explain(_policy(), context, family, **options).refusal
    if refusal is not None:
        raise refusal


def _tampered() -> None:
    doors = Doors()
    near, far = doors.shake(doors.channel("worker", POLICY), doors.channel("scheduler", POLICY))
    buffers = [bytes(each) for each in near.seal([1, 2], near.outbound(Kind.DATA))]
    far.verify([*buffers[:-1], buffers[-1][:-1] + b"?"])


def _of_another_kind() -> None:
    doors = Doors()
    near, far = doors.shake(doors.channel("worker", POLICY), doors.channel("scheduler", POLICY))
    verified = far.verify(near.seal([1, 2], near.outbound(Kind.DATA)))
    far.admit_message(verified, far.inbound(Kind.ADMIN))


def _unsent(value: Any) -> Any:
    """Open what stands in place of a value that its sender could not serialize."""
    return safeser.deserialize(*safeser.serialize(value))


def _peer_unsent() -> None:
    context = Context("worker", "ann", transport="safeser")
    try:
        safeser.serialize(Point(), None, "raise", context, policy=_policy())
    except SafeserError as error:
        raise unsent(
            "worker could not send this value", error, rule="peer.unsent", where="data.x"
        ) from None


def _loaded(value: Any, **options: Any) -> Any:
    return pickles.loads(pickle.dumps(value), **options)


_GRAPH = Context("bob", "scheduler", "task", "update-graph", transport="safeser")

CASES: dict[str, Callable[[], object]] = {
    # --- what policy denies
    "an operation that is not granted": lambda: _asked("bob", Kind.CONTROL, "run"),
    "an operation of a group": lambda: _asked("worker", Kind.CONTROL, "retire_workers"),
    "a submission by one who may only look": lambda: _asked("bob", Kind.TASK, "update-graph"),
    "two who have no context": lambda: _received(1, "ann", "bob"),
    "a sender that nothing lists": lambda: _received(1, "mallory", "scheduler"),
    "a family that is not listed": lambda: _received(Colour.RED, "worker", "scheduler"),
    "code where data is expected": lambda: _received(lambda: 1, "worker", "ann"),
    "a class of one's own in a result": lambda: _received(Point(), "worker", "ann"),
    "a pickle to or from a stranger": lambda: _received(Point(), "mallory", "ann"),
    "a graph by cloudpickle": lambda: _explained(_GRAPH, "cloudpickle"),
    "a value from another author": lambda: _explained(
        Context("scheduler", "ann", transport="safeser"), "pickle", author="bob"
    ),
    "a value from an unknown author": lambda: _explained(
        Context("scheduler", "ann", transport="safeser"), "pickle", author="any"
    ),
    "a payload in an admin message": lambda: _explained(
        Context("worker", "ann", "admin", transport="safeser"), "dask"
    ),
    "a family that was not asked for": lambda: _received(
        np.arange(3), "worker", "ann", ["msgpack"]
    ),
    "a message for another kind": _of_another_kind,
    # --- pickles
    "a pickle of one's own class": lambda: _loaded(Point()),
    "a pickle of two classes": lambda: _loaded(Shape()),
    "a pickle of an enum": lambda: _loaded(Colour.RED),
    "a pickle that calls os.system": lambda: _loaded(_Calls(os.system, "true")),
    "a pickle that calls eval": lambda: _loaded(_Calls(eval, "1")),
    "a pickle of an array": lambda: _loaded(np.arange(3)),
    "a pickle of a function": lambda: _loaded(own_function),
    "bytes that are no pickle": lambda: pickles.loads(b"PK\x03\x04 a zip file"),
    "a pickle over a limit": lambda: _loaded(list(range(100)), limits=Limits(max_refs=50)),
    # --- values to send
    "a lock to send": lambda: safeser.serialize(LOCK, on_error="raise"),
    "one's own class to send": lambda: safeser.serialize({"p": [Point()]}, on_error="raise"),
    "a lock that the sender could not send": lambda: _unsent(LOCK),
    "a result that a worker may not send": _peer_unsent,
    "a type that is not registered": lambda: safeser.deserialize(
        {"serializer": "dask", "type": "shop:Basket", "sub-header": {}}, []
    ),
    "a value over a limit": lambda: safeser.deserialize(
        *safeser.serialize(np.zeros(1000)), limits=Limits(max_bytes=100)
    ),
    # --- before submission
    "preflight of a lock": lambda: safeser.preflight(Held()).require(),
    "preflight of many": lambda: safeser.preflight(
        [LOCK, (n for n in ()), contextvars.copy_context(), threading.Thread()]
    ).require(),
    "preflight of code by one who may only look": lambda: safeser.preflight(
        lambda: 1, _GRAPH, policy=_policy()
    ).require(),
    "a token of a lock": lambda: safeser.tokenize(LOCK, ensure_deterministic=True),
    # --- connections and files
    "a message that was changed": _tampered,
    "a policy with a wrong word": lambda: Policy.parse(
        POLICY.replace("sealed", "seald"), "lab.yaml"
    ),
    "a policy that is not there": lambda: Policy.load("labb"),
}


def text_of(case: Callable[[], object]) -> str:
    """Return the text of the refusal by *case*, or what it returned."""
    try:
        return f"NOT REFUSED: {case()!r}"
    except SafeserError as error:
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        return f"{error}{notes}"


def written() -> str:
    return "\n\n".join(f"# {name}\n{text_of(case)}" for name, case in CASES.items()) + "\n"


if __name__ == "__main__":
    # The classes are those of this module, and not of __main__.
    FILE.write_text(import_module("tests.seeds.refusals").written(), "utf-8")
