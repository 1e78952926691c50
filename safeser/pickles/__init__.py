"""Restricted pickle: exact names, one reader, nothing of a peer's is ever called.

The one rule: what is judged is exactly what is loaded. :func:`loads` reads the whole stream into
inert nodes, judges every use of every global against a profile, and only then builds the object
itself. No other unpickler reads a peer's opcodes, but for granted code
(:func:`safeser.pickles.stock.load_code`). :func:`guard` has the rest of a process do the same.

Restricted pickle reduces what bytes can reach. It is not a sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, BinaryIO

from safeser.errors import PayloadError
from safeser.gate.values import ELEMENT, Limits
from safeser.pickles.budget import Budget
from safeser.pickles.building.holding import held_by
from safeser.pickles.failures import (
    ExceptionRecord,
    FrameRecord,
    exception_record,
    traceback_record,
)
from safeser.pickles.inspection import Inspection
from safeser.pickles.judge import Use, judge, problem_under
from safeser.pickles.nodes import Call, GlobalRef, Program
from safeser.pickles.parsed import Judged, Parsed, parse, parse_tree, whole
from safeser.pickles.profiles import DATA_PROFILES, Entry, Profile
from safeser.pickles.reading.machine import read
from safeser.pickles.unpickler import guard, one_pickle
from safeser.pickles.writing import Reduction, dumps, reduce
from safeser.refused_loads import Reported
from safeser.trace.probe import Done, is_traced, size_of, watch
from safeser.tracebacks import for_callers

__all__ = [
    "DATA_PROFILES",
    "Budget",
    "Entry",
    "ExceptionRecord",
    "FrameRecord",
    "Inspection",
    "Judged",
    "Parsed",
    "Profile",
    "Reduction",
    "Use",
    "check",
    "dumps",
    "exception_record",
    "global_of",
    "guard",
    "held_by",
    "inspect",
    "load",
    "loads",
    "parse",
    "parse_tree",
    "reduce",
    "traceback_record",
]

_DEFAULTS = Limits()
# One bare global takes a few dozen bytes; dask's type fields are read on every finished task.
_MAX_NAME_PICKLE = 4096
_NAME_LIMITS = Limits(max_bytes=_MAX_NAME_PICKLE, max_memory=64 * ELEMENT)


@for_callers
def loads(
    data: bytes | bytearray | memoryview,
    *,
    buffers: Sequence[Any] = (),
    profile: str | Sequence[str] | Profile = "data",
    limits: Limits = _DEFAULTS,
    budget: Budget | None = None,
    persistent_load: Callable[[Any], Any] | None = None,
) -> Any:
    """Return the object that the pickle *data* describes, built through *profile* alone.

    :param buffers: out-of-band buffers in order; the object may keep and share them.
    :param profile: the name of a profile, several names, or a :class:`Profile`.
    :param budget: shared by all pickles of one message; without it this one has all of *limits*.
    :param persistent_load: returns what an id stands for that the writer's ``persistent_id``
        made. It is handed text, or plain values that were judged, of the sender's choice.
    :raises PolicyDenied: a global is used that the profile does not list for that use.
    :raises PayloadError: the pickle is malformed, over budget, or its values are unsound.
    """
    listed, given = Profile.of(profile), list(buffers)
    budget = Budget(limits) if budget is None else budget
    persistent = persistent_load is not None
    with Reported("safeser.pickles.loads"):
        parsed = parse(
            data, buffers=len(given), limits=limits, budget=budget, persistent=persistent
        )
        judged = parsed.judged(listed, buffers=len(given))
        build = partial(judged.build, given, budget, persistent_load=persistent_load)
        if not is_traced():
            return build()
        size = memoryview(data).nbytes + size_of(given)
        return watch("deserialize", build, lambda made: Done(made, "pickle", size))


@for_callers
def load(
    file: BinaryIO,
    *,
    buffers: Sequence[Any] = (),
    profile: str | Sequence[str] | Profile = "data",
    limits: Limits = _DEFAULTS,
    persistent_load: Callable[[Any], Any] | None = None,
) -> Any:
    """Return the object of the next pickle in *file*, as :func:`loads` does; read no byte after it.

    :raises EOFError: the file has no further byte, which ends a file of several pickles.
    :raises PolicyDenied: a global is used that the profile does not list for that use.
    :raises PayloadError: the pickle is malformed, over budget, or its values are unsound.
    """
    return loads(
        one_pickle(file.read, limits, set()),
        buffers=buffers,
        profile=profile,
        limits=limits,
        persistent_load=persistent_load,
    )


@for_callers
def check(
    data: bytes | bytearray | memoryview,
    *,
    buffers: int = 0,
    profile: str | Sequence[str] | Profile = "data",
    limits: Limits = _DEFAULTS,
    budget: Budget | None = None,
) -> None:
    """Refuse what :func:`loads` would refuse before it builds anything; build nothing.

    :param buffers: how many out-of-band buffers come with it.
    :param budget: shared by all pickles of one message.
    :raises PolicyDenied: a global is used that the profile does not list for that use.
    :raises PayloadError: the pickle is malformed or over budget.
    """
    listed = Profile.of(profile)
    parse(data, buffers=buffers, limits=limits, budget=budget).judged(listed, buffers=buffers)


@for_callers
def inspect(
    data: bytes | bytearray | memoryview,
    *,
    buffers: Sequence[Any] | None = None,
    profile: str | Sequence[str] | Profile = "data",
    limits: Limits = _DEFAULTS,
) -> Inspection:
    """Return what the pickle *data* says and which profiles list all that it names; import nothing.

    :param buffers: out-of-band buffers where they are at hand; their number is checked then.
    """
    listed = Profile.of(profile)
    count = None if buffers is None else len(buffers)
    program = read(whole(data, limits), buffers=count, limits=limits, persistent=True)
    uses = judge(program, listed)
    verdicts = {listed.name: _first_problem(uses)}
    for name in DATA_PROFILES:
        if name not in verdicts:
            verdicts[name] = _first_problem_under(Profile.named(name), program, uses)
    return Inspection(program, listed.name, tuple(uses), verdicts)


def global_of(data: bytes | bytearray | memoryview) -> str | None:
    """Return the ``module:qualname`` of a pickle that is one bare global, else None.

    ``type(None)``, which has no global of its own, is ``"builtins:NoneType"``. Malformed bytes
    give None as well: the caller has no use for the difference.
    """
    try:
        root = read(whole(data, _NAME_LIMITS), buffers=0, limits=_NAME_LIMITS).root
    except PayloadError:
        return None
    if isinstance(root, GlobalRef):
        return root.name
    none_type = (
        isinstance(root, Call)
        and not root.new
        and isinstance(root.callee, GlobalRef)
        and root.callee.name == "builtins:type"
        and root.args.items == [None]
    )
    return "builtins:NoneType" if none_type else None


def _first_problem(uses: Sequence[Use]) -> str:
    for use in uses:
        if use.problem:
            return f"{use.name} is {use.role}: {use.problem}"
    return ""


def _first_problem_under(profile: Profile, program: Program, uses: Sequence[Use]) -> str:
    """Return what :func:`_first_problem` would of *profile*'s uses, given those of another.

    They are the same uses; most often the first one settles it, of however many there are. Only
    names among arguments may be judged by their place, which takes judging all of them.
    """
    for use in uses:
        problem = problem_under(use, profile)
        if problem and use.role == "referenced":
            break
        if problem:
            return f"{use.name} is {use.role}: {problem}"
    else:
        return ""
    return _first_problem(judge(program, profile))
