"""The process in which cases are read and used; whoever started it sees what it survived.

The one rule: it says what became of each case before the next one runs, so that a crash belongs to
a case; it is started anew and not forked, so that its hooks and bounds are its own.
"""

from __future__ import annotations

import contextlib
import fnmatch
import mmap
import os
import resource
import signal
import sys
import traceback
import warnings
import zoneinfo
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from safeser import families
from safeser.errors import SafeserError
from safeser.families import plain, registry
from safeser.gate.values import Grant, Limits
from tests.samples.uses import BROKEN, uses
from tests.samples.values import collect
from verification.malformed.mutate import FOREIGN_NODES, Case, Tree, make

__all__ = ["names_in", "pool_of"]

GRANT = Grant("malformed", ("dask", "msgpack"))
FAMILIES = ("dask", "msgpack")
#: Small, so that what they let through is quick to use.
LIMITS = Limits(max_array=1 << 18, max_memory=20_000 << 7, max_bytes=1 << 22)

#: Rooms whose rules refuse payloads.
_RULES = ("families", "context", "pickle", "value")

_CPU_SECONDS = 20.0  # the slowest honest case takes a hundredth
_RECURSION = sys.getrecursionlimit()  # that of whoever reads a message
_MEMORY = 1 << 30  # beyond what is mapped before the first case

#: Nothing that a value is built or used for does these.
_NEVER = (
    "os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "socket.connect",
    "socket.bind", "ctypes.dlopen", "shutil.", "os.remove", "os.rename", "pty.spawn",
)  # fmt: skip
#: While it is read, these neither. Importing is asking for what is not loaded yet.
_NEVER_READING = (
    "open", "import", "exec", "compile", "ctypes.", "socket.", "os.listdir", "os.scandir",
    "marshal.loads", "pickle.find_class", "glob.", "tempfile.",
)  # fmt: skip


#: Events that no message chose: Dask's token of a collection loads the class of its expression;
#: Cython's limited API compiles a text for the code object of each traceback.
_HARMLESS = (
    ("pickle.find_class", ("dask.dataframe.dask_expr.io.io", "FromGraph")),
    ("compile", (b"_getframe()", "src/cftime/_cftime.pyx")),
)


class Watch:
    """What the interpreter was asked to do; hooks cannot be removed, so it is switched."""

    def __init__(self) -> None:
        self.phase = 0
        self.seen: list[str] = []
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.phase:
            return
        if (event, args) in _HARMLESS:
            return
        names = _NEVER if self.phase == 2 else (*_NEVER, *_NEVER_READING)
        if event.startswith(names) and not (event == "open" and _is_zone(args[0])):
            self.seen.append(f"{event} {args!r:.200}")


def _is_zone(path: object) -> bool:
    """Whether *path* is a file of the time zone database, whose names are checked before."""
    roots = (*zoneinfo.TZPATH, *(f"{root}/tzdata" for root in sys.path))
    return isinstance(path, str) and ".." not in path and path.startswith(roots)


def pool_of(examples: dict[str, object]) -> dict[str, Tree]:
    """Return how each example travels."""
    pool = {}
    for name, value in examples.items():
        header, frames = families.serialize(value, FAMILIES)
        header = plain.decode(plain.encode(header))
        pool[name] = Tree.of(header, [bytes(frame) for frame in frames])
    return pool


def names_in(pool: dict[str, Tree], only: str) -> list[str]:
    return [name for name in pool if not only or fnmatch.fnmatch(name, f"*{only}*")]


def _unseen(pool: dict[str, Tree]) -> list[str]:
    """Return typed serializers that no example shows, of packages that are installed."""
    packages = {name: name.partition(":")[0].partition(".")[0] for name in registry.names()}
    listed = {name for name, top in packages.items() if top != "tests" and find_spec(top)}
    nodes = (node for tree in pool.values() for node in tree.nodes())
    return sorted(listed - {node.header.get("type", "") for node in nodes})


def read(case: Case) -> Any:
    header = plain.decode(case.raw, limits=LIMITS) if case.raw else case.header
    families.claimed(header, limits=LIMITS)
    families.derive(header, case.frames, limits=LIMITS)
    families.check(header, case.frames, limits=LIMITS)
    return families.deserialize(header, case.frames, GRANT, limits=LIMITS)


class Runner:
    """Runs cases and says of each what became of it, or how it broke the contract."""

    def __init__(self) -> None:
        examples, self.more = collect()
        self.pool = pool_of(examples)
        # What is loaded on first use is loaded now; from here on, nothing may be.
        for tree in self.pool.values():
            self.use(read(Case(*tree.flat())))
        "\n".encode("unicode_escape")
        for header, frames in (*FOREIGN_NODES, ({"serializer": "nobody's"}, [])):
            with contextlib.suppress(SafeserError):
                read(Case(header, list(frames)))
        self.watch = Watch()

    def run(self, name: str, seed: int, number: int) -> str:
        sys.setrecursionlimit(20_000)
        case = make(name, seed, number, self.pool)
        sys.setrecursionlimit(_RECURSION)
        signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
        problem, outcome = "", "accepted"
        self.watch.phase = 1
        modules = len(sys.modules)
        try:
            value = read(case)
            if len(sys.modules) != modules:
                problem = "a module was imported"
        except SafeserError as error:
            self.watch.phase = 0
            outcome = "refused"
            if error.rule.partition(".")[0] not in _RULES:
                problem = f"an unexpected rule: {error.rule}"
            elif len(str(error)) > 1000:
                problem = "a message without bounds"
        # The contract is that nothing else is raised.
        except BaseException as error:
            self.watch.phase = 0
            problem = "".join(traceback.format_exception(error)[-4:])
        else:
            self.watch.phase = 2
            problem = problem or self.use(value)
            self.watch.phase = 0
        if self.watch.seen:
            problem = problem or f"the interpreter was asked to: {'; '.join(self.watch.seen[:4])}"
            self.watch.seen.clear()
        return f"broken: {problem}".replace("\n", " | ") if problem else outcome

    def use(self, value: Any) -> str:
        try:
            for act in [*uses(value), *(act for more in self.more for act in more(value))]:
                try:
                    act()
                except BROKEN as error:
                    sparse = type(value).__module__.startswith("scipy.sparse")
                    if sparse and isinstance(error, MemoryError):  # written out, it never fits
                        continue
                    return "in use: " + "".join(traceback.format_exception(error)[-4:])
                except Exception:  # an odd value may raise anything ordinary
                    continue
        except Exception as error:  # a way to use it that is wrong itself
            return "in use: " + "".join(traceback.format_exception(error)[-4:])
        return ""


def main(only: str, *numbers: str) -> None:
    seed, first, last, writing = map(int, numbers)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    warnings.simplefilter("ignore")
    runner = Runner()
    _bound_memory()
    warnings.simplefilter("error")
    names = names_in(runner.pool, only)
    # Before the first case: in a process that does more, more is registered.
    os.write(writing, f"{first - 1} unseen {' '.join(_unseen(runner.pool))}\n".encode())
    for position in range(first, last if names else first):
        said = runner.run(names[position % len(names)], seed, position // len(names))
        os.write(writing, f"{position} {said}\n".encode(errors="backslashreplace"))
    signal.setitimer(signal.ITIMER_PROF, 0)


def _bound_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    bound = pages * mmap.PAGESIZE + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
