"""``python -m verification.mutants``: break thirty guarantees, one at a time, and see what notices.

The one rule: a mutant is one change of one file, made in a copy of the checkout whose own
environment imports that copy; the tests of the copy decide. ``mutants.toml`` has the changes, with
the tests that are asked first. What ``make fast`` notices, the whole suite notices as well, since
it runs the same tests: the whole suite is asked about the others.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]

#: What a run of pytest gets beside its tests; ``fast`` is what ``make fast`` runs.
_OPTIONS = {"fast": ("-m", "not cluster and not slow"), "test": ()}
_PARALLEL = ("--numprocesses=3", "--dist=loadfile", "--no-loadscope-reorder")
#: How many of the mutants a suite may miss.
_MAY_MISS = {"fast": 3, "test": 0}

#: Seconds for one run; a mutant that has tests wait for ever is noticed.
_MOST_SECONDS = 3600.0
_NOTICED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
#: Variables that would have processes import another checkout, or measure.
_NOT_PASSED = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "COVERAGE_", "SAFESER_")


class MutantError(Exception):
    """A mutant that cannot be made, or tests that fail without one."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One row of ``mutants.toml``."""

    name: str
    guarantee: str
    source: str
    file: str
    old: str
    new: str
    fast: Sequence[str] = ()
    test: Sequence[str] = ()

    def changed(self) -> str:
        """Return the text of its file with the guarantee broken."""
        text = (ROOT / self.file).read_text(encoding="utf-8")
        found = text.count(self.old)
        if found != 1:
            raise MutantError(
                f"{self.name}: the old text occurs {found} times in {self.file}, not once"
            )
        return text.replace(self.old, self.new)

    def catchers(self, suite: str) -> tuple[list[str], list[str]]:
        """Return the tests to ask first, by file or folder: those that are there, and others."""
        named = self.fast if suite == "fast" else self.test or self.fast
        there = [each for each in named if (ROOT / each.partition("::")[0]).exists()]
        return there, [each for each in named if each not in there]


class Checkout:
    """A copy of this checkout, and an environment that imports it in every process.

    The environment is this one by hard links, with scripts and the path to the source rewritten:
    processes that tests start by ``sys.executable`` or a script beside it get the copy as well.

    :ivar tree: a digest of what was copied, without these programs and the docs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._python = path / ".venv" / "bin" / "python"
        shutil.rmtree(path, ignore_errors=True)
        whole = hashlib.sha256()
        for name in _output("git", "-C", str(ROOT), "ls-files", "-z").split("\0"):
            source, target = ROOT / name, path / name
            if not source.is_file() and not source.is_symlink():  # deleted, not yet committed
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            if source.is_file() and not name.startswith(("verification/", "docs/")):
                whole.update(name.encode() + b"\0" + hashlib.sha256(source.read_bytes()).digest())
        self.tree = whole.hexdigest()
        self._make_environment(Path(sys.prefix), path / ".venv")

    def _make_environment(self, own: Path, made: Path) -> None:
        shutil.copytree(own, made, symlinks=True, copy_function=_linked)
        for script in (made / "bin").iterdir():
            if not script.is_symlink():
                data = script.read_bytes().replace(os.fsencode(own), os.fsencode(made))
                _replace(script, data)
        for each in made.glob("lib/python*/site-packages/*.pth"):
            if each.read_text(encoding="utf-8").strip() == str(ROOT):
                _replace(each, os.fsencode(self.path))
        found = _output(str(self._python), "-P", "-c", "import safeser; print(safeser.__file__)")
        if not Path(found.strip()).is_relative_to(self.path):
            raise MutantError(f"the copy's environment imports {found.strip()}, not the copy")

    def write(self, file: str, text: str) -> None:
        """Write one source file, and forget what was compiled of it within the same second."""
        path = self.path / file
        path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def noticed_by(self, suite: str, tests: Sequence[str], *options: str) -> str:
        """Run *tests* of *suite* to the first that fails, and return it; empty if none does."""
        pytest = [str(self._python), "-m", "pytest", "-xq", "--tb=no", "-p", "no:cacheprovider"]
        process = subprocess.Popen(  # noqa: S603 - of the table
            [*pytest, *_OPTIONS[suite], *options, *tests],
            cwd=self.path,
            env=_environment(suite),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            out, _ = process.communicate(timeout=_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            return "a test that does not end"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode in (0, 4, 5):  # all pass, are gone, or are not of this suite
            return ""
        found = _NOTICED.search(out)
        return found[1] if found else f"pytest, which ends with {process.returncode}"


def _linked(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def _replace(path: Path, data: bytes) -> None:
    """Write another file in the place of *path*, whose bytes another environment shares."""
    mode = path.stat().st_mode
    path.unlink()
    path.write_bytes(data)
    path.chmod(mode)


def _environment(suite: str) -> dict[str, str]:
    kept = {name: it for name, it in os.environ.items() if not name.startswith(_NOT_PASSED)}
    return kept | ({"SAFESER_TESTS": "fast"} if suite == "fast" else {})


def _output(*command: str) -> str:
    return subprocess.run(  # noqa: S603 - our own commands
        command, capture_output=True, text=True, check=True, env=_environment("test")
    ).stdout


class Run:
    """Asks suites about mutants; what was found is kept in a file, since it takes hours."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._checkout = Checkout(folder / "checkout")
        self._file = folder / "state.json"
        said = json.loads(self._file.read_text("utf-8")) if self._file.exists() else {}
        self._known: dict[str, str] = said.get(self._checkout.tree, {})

    def _keep(self, question: str, found: str) -> str:
        self._known[question] = found
        self._file.write_text(json.dumps({self._checkout.tree: self._known}, indent=1))
        return found

    def ask(self, suite: str, mutants: Sequence[Mutant]) -> dict[str, str]:
        """Return the test of *suite* that notices each of *mutants*; empty text for none.

        :raises MutantError: if a test that the table names fails with nothing broken.
        """
        tests = sorted({test for each in mutants for test in each.catchers(suite)[0]})
        sound = f"{suite} with nothing broken: {' '.join(tests)}"
        if tests and sound not in self._known:
            print(sound, flush=True)
            if failed := self._checkout.noticed_by(suite, tests, *_PARALLEL):
                raise MutantError(f"{failed} fails with nothing broken")
            self._keep(sound, "")
        noticed = {}
        for number, each in enumerate(mutants, start=1):
            found = self._known.get(f"{suite} {each}")
            if found is None:
                found = self._keep(f"{suite} {each}", self._asked(suite, each))
            noticed[each.name] = found
            place = f"{suite} {number} of {len(mutants)}"
            print(f"{place}, {each.name}: {found or 'MISSED'}", flush=True)
        return noticed

    def _asked(self, suite: str, mutant: Mutant) -> str:
        there, gone = mutant.catchers(suite)
        if gone:
            print(f"{mutant.name}: {' '.join(gone)} is gone: running the rest", flush=True)
        self._checkout.write(mutant.file, mutant.changed())
        try:
            found = self._checkout.noticed_by(suite, there, "-n0") if there else ""
            rest = [f"--ignore={each}" for each in there if "::" not in each]
            return found or self._checkout.noticed_by(suite, ["tests"], *_PARALLEL, *rest)
        finally:
            self._checkout.write(mutant.file, (ROOT / mutant.file).read_text(encoding="utf-8"))


def main() -> int:
    """Print what notices each mutant; return 1 if a suite misses more than it may."""
    parser = argparse.ArgumentParser(prog="verification.mutants", description=__doc__)
    parser.add_argument("--suite", choices=("fast", "test"), default="test")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=())
    parser.add_argument("--state", type=Path, default=ROOT / ".mutants")
    told = parser.parse_args()
    rows = tomllib.loads((ROOT / "verification" / "mutants.toml").read_text(encoding="utf-8"))
    noticed = {}
    try:
        mutants = [Mutant(name, **rows[name]) for name in told.only or rows]
        for each in mutants:
            each.changed()
        run = Run(told.state.resolve())
        fast = noticed["fast"] = run.ask("fast", mutants)
        if told.suite == "test":
            missed = [each for each in mutants if not fast[each.name]]
            noticed["test"] = fast | run.ask("test", missed)
    except (MutantError, KeyError) as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2
    table = Table("mutant", "guarantee", *noticed, box=None)
    for each in mutants:
        table.add_row(each.name, each.guarantee, *(it[each.name] or "-" for it in noticed.values()))
    Console().print(table)
    caught = {suite: sum(map(bool, it.values())) for suite, it in noticed.items()}
    print(", ".join(f"{suite} caught {n} of {len(mutants)}" for suite, n in caught.items()))
    return int(any(len(mutants) - n > _MAY_MISS[suite] for suite, n in caught.items()))


if __name__ == "__main__":
    sys.exit(main())
