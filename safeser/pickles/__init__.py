"""Restricted pickle: exact names, one reader, nothing of a peer's is ever called.

The one rule: what is judged is exactly what is loaded. :func:`loads` reads the whole stream into
inert nodes, judges every use of every global against a profile, and only then builds the object
itself. No other unpickler reads a peer's opcodes, but for granted code
(:func:`safeser.pickles.stock.load_code`), and for those that can do no more than make plain values
(:func:`safeser.pickles.canonical.as_written`).

Restricted pickle reduces what bytes can reach. It is not a sandbox.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from safeser.errors import PayloadError, PolicyDenied
from safeser.pickles.advice import MAX_READ, deny
from safeser.pickles.budget import Budget, over
from safeser.pickles.build import Builder
from safeser.pickles.cache import Programs, Scopes, Unknown, Verdicts, wanted
from safeser.pickles.canonical import Canonical, as_written
from safeser.pickles.dtypes import DtypeRecord, dtype_record
from safeser.pickles.failures import (
    ExceptionRecord,
    FrameRecord,
    exception_record,
    traceback_record,
)
from safeser.pickles.holding import held_by
from safeser.pickles.inspection import Inspection
from safeser.pickles.judge import Use, check_shape, judge, problem_under
from safeser.pickles.machine import read
from safeser.pickles.nodes import Call, GlobalRef, Program
from safeser.pickles.profiles import DATA_PROFILES, Entry, Profile
from safeser.pickles.writing import dumps
from safeser.values import Limits

__all__ = [
    "DATA_PROFILES",
    "Budget",
    "DtypeRecord",
    "Entry",
    "ExceptionRecord",
    "FrameRecord",
    "Inspection",
    "Profile",
    "Use",
    "check",
    "dtype_record",
    "dumps",
    "exception_record",
    "family_of",
    "forget",
    "global_of",
    "held_by",
    "inspect",
    "loads",
    "traceback_record",
]

_DEFAULTS = Limits()
# One bare global takes a few dozen bytes; dask's type fields are read on every finished task.
_MAX_NAME_PICKLE = 4096
_NAME_LIMITS = Limits(max_bytes=_MAX_NAME_PICKLE, max_refs=64)
_SCOPES = Scopes()
_VERDICTS = Verdicts()
_PROGRAMS = Programs()


def loads(
    data: bytes | bytearray | memoryview,
    *,
    buffers: Sequence[Any] = (),
    profile: str | Sequence[str] | Profile = "data",
    limits: Limits = _DEFAULTS,
    budget: Budget | None = None,
    persistent_load: Callable[[Any], Any] | None = None,
    policy: str = "",
) -> Any:
    """Return the object that the pickle *data* describes, built through *profile* alone.

    :param buffers: out-of-band buffers in order; the object may keep and share them.
    :param profile: the name of a profile, several names, or a :class:`Profile`.
    :param budget: shared by all pickles of one message; without it this one has all of *limits*.
    :param persistent_load: returns what an id stands for that the writer's ``persistent_id``
        made. It is handed text, or plain values that were judged, of the sender's choice.
    :param policy: hash of the policy that decides; verdicts are remembered for each one apart.
    :raises PolicyDenied: a global is used that the profile does not list for that use.
    :raises PayloadError: the pickle is malformed, over budget, or its values are unsound.
    """
    listed = profile if type(profile) is Profile else Profile.of(profile)
    given, whole = list(buffers), data if type(data) is bytes else _whole(data, limits)
    scope = _SCOPES.of(listed, limits, policy)
    verdict = None if persistent_load else _VERDICTS.find(whole, scope)
    spoilt = False
    if verdict is not None:
        try:
            return verdict.load(whole, given, limits, budget)
        except Unknown as unknown:
            spoilt = unknown.spoilt
    budget = Budget(limits) if budget is None else budget
    persistent = persistent_load is not None
    program = _judged(whole, len(given), listed, limits, budget=budget, persistent=persistent)
    made: Builder | Canonical | None = None if persistent else as_written(program, whole)
    if isinstance(made, Canonical):
        budget.bring(len(whole))
        found = made.load(given, limits)
    else:
        made = Builder(
            program,
            listed,
            buffers=given,
            limits=limits,
            budget=budget,
            persistent_load=persistent_load,
        )
        found = made.build()
    if spoilt and verdict is not None:
        # Only now: what is refused as well failed by its arrays, its buffers or its budget, and
        # whoever sends such a one must not take the short way from all others.
        _VERDICTS.spoil(whole, scope, verdict)
    if not persistent and _fits(budget, limits):
        _VERDICTS.note(whole, scope, program, made=made, buffers=given)
    return found


def check(
    data: bytes | bytearray | memoryview,
    *,
    buffers: int = 0,
    profile: str | Sequence[str] | Profile = "data",
    limits: Limits = _DEFAULTS,
    budget: Budget | None = None,
    policy: str = "",
) -> None:
    """Refuse what :func:`loads` would refuse before it builds anything; build nothing.

    :param buffers: how many out-of-band buffers come with it.
    :param budget: shared by all pickles of one message.
    :param policy: as for :func:`loads`.
    :raises PolicyDenied: a global is used that the profile does not list for that use.
    :raises PayloadError: the pickle is malformed or over budget.
    """
    listed, whole = Profile.of(profile), _whole(data, limits)
    scope = _SCOPES.of(listed, limits, policy)
    verdict = _VERDICTS.find(whole, scope)
    if verdict is not None and verdict.wanted <= buffers:
        if budget is not None:
            budget.spend(refs=verdict.refs, calls=verdict.calls)
        return
    again = _fits(budget, limits)
    program = _judged(whole, buffers, listed, limits, budget=budget, again=again)
    if again:
        _VERDICTS.note(whole, scope, program)


def _fits(budget: Budget | None, limits: Limits) -> bool:
    """Whether what *budget* lets pass is within *limits*, as what is remembered must be.

    Not where a policy's limits have changed while its message was on the way.
    """
    return budget is None or budget.limits is limits or budget.limits == limits


def _judged(
    data: bytes,
    buffers: int,
    listed: Profile,
    limits: Limits,
    *,
    budget: Budget | None = None,
    persistent: bool = False,
    again: bool = False,
) -> Program:
    """Return what *data* says, if *listed* allows it.

    :param again: it will be asked for again soon.
    """
    known = None if persistent else _PROGRAMS.find(data, limits, last=not again)
    if known is not None and wanted(known) > buffers:
        known = None
    if known is not None and budget is not None:
        budget.spend(refs=known.refs, calls=known.calls)
    program = known or read(
        data, buffers=buffers, limits=limits, budget=budget, persistent=persistent
    )
    uses = judge(program, listed, persistent=persistent, only_denied=True)
    if uses:
        raise deny(*uses[:MAX_READ], profile=listed)
    if known is None:
        check_shape(program, limits)
        if again:
            _PROGRAMS.keep(data, limits, program)
    return program


def inspect(
    data: bytes | bytearray | memoryview,
    *,
    buffers: Sequence[Any] | None = None,
    profile: str | Sequence[str] | Profile = "data",
    limits: Limits = _DEFAULTS,
) -> Inspection:
    """Return what the pickle *data* says and which profiles would load it; import nothing.

    :param buffers: out-of-band buffers where they are at hand; their number is checked then.
    """
    listed = Profile.of(profile)
    count = None if buffers is None else len(buffers)
    program = read(_whole(data, limits), buffers=count, limits=limits, persistent=True)
    uses = judge(program, listed)
    verdicts = {listed.name: _first_problem(uses)}
    for name in DATA_PROFILES:
        if name not in verdicts:
            verdicts[name] = _first_problem_under(Profile.named(name), program, uses)
    return Inspection(program, listed.name, tuple(uses), verdicts)


def family_of(
    data: bytes | bytearray | memoryview,
    *,
    profiles: str | Sequence[str] | Profile = DATA_PROFILES,
    limits: Limits = _DEFAULTS,
    budget: Budget | None = None,
    denials: list[PolicyDenied] | None = None,
) -> str:
    """Return ``"pickle"`` if *profiles* list every use of a global, else ``"cloudpickle"``.

    Derived from the content and never from what a header claims.

    :param budget: shared by all pickles of one message.
    :param denials: gets the refusal that names what makes it ``"cloudpickle"``.
    :raises PayloadError: the pickle is malformed or over budget.
    """
    listed, whole = Profile.of(profiles), _whole(data, limits)
    scope = _SCOPES.of(listed, limits, "")
    if _VERDICTS.find(whole, scope) is not None:
        return "pickle"
    program = read(whole, buffers=None, limits=limits, budget=budget)
    uses = judge(program, listed, only_denied=True)
    if uses:
        if denials is not None:
            denials.append(deny(*uses[:MAX_READ], profile=listed))
        return "cloudpickle"
    check_shape(program, limits)
    if _fits(budget, limits):
        _PROGRAMS.keep(whole, limits, program)
        _VERDICTS.note(whole, scope, program)
    return "pickle"


def forget() -> None:
    """Forget every verdict, as a new process would; for measurements."""
    _VERDICTS.clear()
    _PROGRAMS.clear()


def global_of(data: bytes | bytearray | memoryview) -> str | None:
    """Return the ``module:qualname`` of a pickle that is one bare global, else None.

    ``type(None)``, which has no global of its own, is ``"builtins:NoneType"``. Malformed bytes
    give None as well: the caller has no use for the difference.
    """
    try:
        root = read(_whole(data, _NAME_LIMITS), buffers=0, limits=_NAME_LIMITS).root
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


def _whole(data: bytes | bytearray | memoryview, limits: Limits) -> bytes:
    """Return *data* as bytes; a copy only where it isn't, and only within bounds."""
    if type(data) is bytes:
        return data
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(f"data is bytes or another buffer, not a {type(data).__name__}") from None
    if view.nbytes > limits.max_bytes:
        raise over("max-bytes", "the pickle is larger than allowed")
    return view.tobytes()
