"""Guard a process: after :func:`guard`, its stock unpicklers build only what a profile lists.

The one rule: the guard refuses and never permits. CPython's unpickler looks up no global in a
guarded process (an audit hook, which the interpreter never removes), so that it can call nothing;
and ``pickle.load``, ``pickle.loads`` and ``pickle.Unpickler`` lead to safeser's reader, which
builds what it judged itself. A name for CPython's unpickler that was taken before meets the hook.

A file is cut at STOP and nowhere else, by the lengths that opcodes state; what an opcode means is
read once, by :mod:`safeser.pickles.reading`, which refuses a piece that is no whole pickle.

The guard keeps a program from running what a file or peer wrote. It is no sandbox: code that runs
already can read pickles by other means.
"""

from __future__ import annotations

import copyreg
import pickle
import pickletools
import sys
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from types import ModuleType
from typing import Any, Final

from safeser.errors import ConfigError, PayloadError, PolicyDenied
from safeser.gate.values import Limits
from safeser.pickles.budget import Budget, over
from safeser.pickles.judge import judge
from safeser.pickles.nodes import Program
from safeser.pickles.parsed import parse
from safeser.pickles.profiles import Profile
from safeser.refused_loads import Reported

__all__ = ["guard", "one_pickle"]

_STOP = b"."
#: Bytes of the length that stands before an argument, by pickletools' mark for it.
_PREFIXES: Final = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}


def _follows(argument: pickletools.ArgumentDescriptor | None) -> tuple[int, int, int]:
    """Return what *argument* takes: lines, bytes, and bytes of the length of more bytes."""
    if argument is None:
        return 0, 0, 0
    if argument.n == pickletools.UP_TO_NEWLINE:
        return 2 if argument is pickletools.stringnl_noescape_pair else 1, 0, 0
    prefix = _PREFIXES.get(argument.n, 0)
    return 0, 0 if prefix else argument.n, prefix


_OPCODES: Final = {each.code.encode("latin-1"): _follows(each.arg) for each in pickletools.opcodes}

#: pickle's unpickler in Python: every Unpickler of a guarded process is this class, or made of it.
_Unpickler: Final[Any] = pickle._Unpickler
#: What a subclass may have of its own; other parts of it would be another reading of the bytes.
_MAY_DIFFER = {"load", "find_class", "persistent_load"}
_READING = {name for name in vars(_Unpickler) if not name.startswith("__")} - _MAY_DIFFER
#: Encodings in which text of Python 2, where it is ASCII, reads as it does here.
_LIKE_ASCII = {"ascii", "latin1", "latin-1", "utf-8", "utf8"}

#: Opcodes that store in the memo, and those that take from it.
_STORING, _TAKING = {b"p", b"q", b"r", pickle.MEMOIZE}, {b"g", b"h", b"j"}

#: What :func:`guard` was given; None in a process that is not guarded.
_guarded: tuple[Profile, Limits] | None = None


class _Unbound(staticmethod):  # type: ignore[type-arg]  # any function
    """A function of ``pickle``, which classes that have it as an attribute do not bind.

    As CPython's own, it is pickled by its name.
    """

    def __reduce__(self) -> str:
        return self.__name__.lstrip("_")


class _Denied(PolicyDenied, pickle.UnpicklingError):
    """A refusal as pickle's own error too, which programs catch to rebuild a cache."""

    def __reduce__(self) -> tuple[object, ...]:
        return PolicyDenied, *super().__reduce__()[1:]  # elsewhere, it is the plain one


class _Malformed(PayloadError, pickle.UnpicklingError):
    """As :class:`_Denied`, of a pickle that is malformed or over budget."""

    def __reduce__(self) -> tuple[object, ...]:
        return PayloadError, *super().__reduce__()[1:]


_OF_PICKLE: Final[dict[type, type]] = {PolicyDenied: _Denied, PayloadError: _Malformed}
for _plain, _error in _OF_PICKLE.items():
    # Logs, replies and tracebacks name an error by its plain class.
    _error.__module__, _error.__qualname__ = _plain.__module__, _plain.__qualname__
    _error.__name__ = _plain.__name__


def one_pickle(read: Callable[[int], Any], limits: Limits, codes: set[bytes]) -> bytes:
    """Return the next pickle of a file, up to its STOP or to where it can be no pickle any more.

    :param codes: gets its opcodes.
    :param read: returns as many bytes as it is asked for, fewer only where the file ends. It is
        asked for no byte after STOP, and for no more at once than ``limits.max_bytes`` leaves.
    :raises EOFError: the file has no further byte, as pickle says it of a file of several.
    :raises PayloadError: the pickle is larger than ``limits.max_bytes``.
    """
    taken = bytearray()
    most = limits.max_bytes
    while True:
        code = read(1)
        if not code and not taken:
            raise EOFError("the file holds no further pickle")
        taken += code
        codes.add(code)
        if code == _STOP or code not in _OPCODES:
            break
        lines, size, prefix = _OPCODES[code]
        if prefix:
            length = read(prefix)
            taken += length
            size = int.from_bytes(length, "little")
        if len(taken) + size > most:
            raise over("max-bytes", "the pickle is larger than allowed")
        if size:
            argument = read(size)
            taken += argument
            if len(argument) != size:
                break
        while lines and len(taken) <= most:
            byte = read(1)
            taken += byte
            lines = lines - (byte == b"\n") if byte else 0
    return bytes(taken)


def guard(*, profile: str | Sequence[str] | Profile = "data", limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
    """Have all of this process's unpicklers refuse what *profile* does not list, until it ends.

    Call it before other imports. A second call with the same arguments changes nothing. Errors are
    those of :func:`safeser.pickles.loads` and ``pickle.UnpicklingError`` at once, and ``EOFError``
    at the end of a file.

    :param profile: as of :func:`safeser.pickles.loads`.
    :param limits: of each pickle.
    :raises ConfigError: the process is guarded with other arguments, something forbids the audit
        hook, or a class is derived of CPython's unpickler already.
    """
    global _guarded  # noqa: PLW0603 - a process is guarded once
    listed = Profile.of(profile)
    if _guarded is not None:
        if (_guarded[0].entries, _guarded[1]) != (listed.entries, limits):
            raise ConfigError(
                "this process is guarded already, with another profile or other limits",
                rule="pickle.guarded",
                fix="Call guard() once, before other imports.",
            )
        return
    stock: Any = pickle.Unpickler
    derived = stock.__subclasses__()
    if derived:
        named = f"{derived[0].__module__}.{derived[0].__qualname__}"
        raise ConfigError(
            f"{named} is derived of CPython's unpickler already",
            rule="pickle.guarded",
            fix="Call guard() before other imports.",
        )
    sys.addaudithook(_refuse_lookups)
    try:
        sys.audit("pickle.find_class", "safeser", "guard")
    except PolicyDenied:
        pass
    else:  # an earlier hook forbids further ones, which the interpreter does not tell
        raise ConfigError("another audit hook forbids this one", rule="pickle.guarded")
    copyreg.clear_extension_cache()  # objects that extension codes find without a lookup
    _guarded = listed, limits
    _Unpickler.load, _Unpickler.find_class = _load, _find_class
    instead = {
        id(stock): _Unpickler,
        id(pickle.load): _Unbound(pickle._load),  # type: ignore[attr-defined]  # typeshed lacks it
        id(pickle.loads): _Unbound(pickle._loads),  # type: ignore[attr-defined]  # typeshed lacks it
    }
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            names = vars(module)
            names.update({k: instead[id(v)] for k, v in list(names.items()) if id(v) in instead})


def _refuse_lookups(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse what CPython's own unpicklers ask before they look up a global."""
    if event == "pickle.find_class":
        raise _Denied(
            "the process is guarded, and a name of CPython's unpickler was taken before",
            rule="pickle.guarded",
            fix="Call guard() before other imports.",
        )


def _find_class(self: Any, module: str, name: str) -> Any:
    """Return the global that the profile lists, in place of ``Unpickler.find_class``."""
    assert _guarded is not None
    entry = _guarded[0].get(f"{module}:{name}")
    if entry is None:
        raise _Denied(
            f"{module}:{name} is asked for, and profile {_guarded[0].name} does not list it",
            rule="pickle.guarded",
            fix="Add it to the profile that guard() is given, if it may be built.",
        )
    return _guarded[0].object_of(entry)


def _load(self: Any) -> Any:
    """Return the next object of the file, in place of ``Unpickler.load``."""
    try:
        with Reported("safeser.pickles.guard"):
            return _loaded(self)
    except (PolicyDenied, PayloadError) as error:
        kind = _OF_PICKLE.get(type(error))
        if kind is None:
            raise
        made = kind.__new__(kind, *error.args)
        vars(made).update(vars(error))
        raise made.with_traceback(error.__traceback__) from error.__cause__


def _loaded(self: Any) -> Any:
    assert _guarded is not None
    profile, limits = _guarded
    _check_reading(self)
    persistent = getattr(self.persistent_load, "__func__", None) is not _Unpickler.persistent_load
    budget = Budget(limits)
    data = _own_pickle(self, limits)
    parsed = parse(data, limits=limits, budget=budget, persistent=persistent)
    buffers = list(islice(self._buffers or (), parsed.program.buffers))
    judged = parsed.judged(profile, buffers=len(buffers))
    if getattr(self.find_class, "__func__", None) is not _find_class:
        _ask(self.find_class, parsed.program, profile)
    load = self.persistent_load if persistent else None
    return judged.build(buffers, budget, persistent_load=load)


def _own_pickle(unpickler: Any, limits: Limits) -> bytes:
    """Return the next pickle of *unpickler*'s file, if it means the same without earlier ones.

    CPython's unpickler keeps its memo from one load to the next, and MEMOIZE numbers on from there:
    read alone, such a pickle would have its own objects in place of earlier ones.
    """
    codes: set[bytes] = set()
    data = one_pickle(unpickler._file_read, limits, codes)
    if unpickler.memo and pickle.MEMOIZE in codes and codes & _TAKING:
        raise PayloadError(
            "the pickle may refer to objects of an earlier one, which this unpickler loaded",
            rule="pickle.memo",
            fix="Write and read each object with a Pickler and an Unpickler of its own.",
        )
    if codes & _STORING:
        unpickler.memo[0] = None
    return data


def _check_reading(unpickler: Any) -> None:
    """Refuse an unpickler that reads otherwise than safeser does: what is judged must be built."""
    own = _READING & vars(unpickler).keys()
    for base in takewhile(lambda base: base is not _Unpickler, type(unpickler).__mro__):
        own |= _READING & vars(base).keys()
    if own:
        raise PolicyDenied(
            f"{type(unpickler).__qualname__} reads opcodes its own way ({', '.join(sorted(own))})",
            rule="pickle.guarded",
            fix="Read the file by safeser.pickles.load, or have it written as a plain pickle.",
        )
    if not unpickler.fix_imports or str(unpickler.encoding).lower() not in _LIKE_ASCII:
        raise PayloadError(
            "a guarded process reads with fix_imports, and text of Python 2 as ASCII alone",
            rule="pickle.guarded",
            fix="Leave fix_imports and encoding out, or have the pickle written by Python 3.",
        )


def _ask(find_class: Any, program: Program, profile: Profile) -> None:
    """Have an unpickler's own *find_class* refuse what it will; it cannot redirect a name."""
    for name in sorted({use.name for use in judge(program, profile, persistent=True)}):
        entry = profile.get(name)
        if entry is not None and find_class(*name.split(":")) is not profile.object_of(entry):
            raise PolicyDenied(
                f"the program's find_class has another object for {name} than the profile",
                rule="pickle.guarded",
                fix="Allow the object under its own name, and have it written under that name.",
            )
