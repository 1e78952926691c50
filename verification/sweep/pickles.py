"""Whether any listed constructor gives much for few bytes.

For every constructor that a data profile lists, the pickle holds one valid set of arguments in its
memo and calls it again and again, at some nine bytes for each call, until it has 100 kB. Each such
pickle is loaded in a process of its own, whether it ends as an object or is refused, and must take

* at most ``8 * (max_copies * size + 1 MiB)`` bytes of memory: eight times what a message of *size*
  bytes, its buffers included, may have copied. Memory is the peak of the process's resident memory
  over what it held before, and so counts the reader's and the builder's own as well;
* at most one second of processor time in all, and a tenth of one in any single call.

An entry that no attack reaches counts as failed. Options:
``--only TEXT`` takes entries and samples whose name has it, ``--quick`` the smallest arguments of
each constructor alone, ``--worst N`` prints so many lines.
"""

from __future__ import annotations

import argparse
import json
import pickle
import struct
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safeser.errors import SafeserError
from safeser.gate.values import Limits
from safeser.pickles import DATA_PROFILES, Entry, Profile, loads
from tests.samples.repeated import Template, templates
from verification.sweep import samples

PROFILE = Profile.named(*DATA_PROFILES)
SIZE = 100_000
#: What the arguments take: the more they hold, the fewer calls are left, and half is worst.
LARGE = SIZE // 2
FREE = 1 << 20
FACTOR = 8
MAX_SECONDS, MAX_LONGEST = 1.0, 0.1
_FIRST, _SECOND = 3, 300
#: Run at once; what is measured is processor time.
_PROCESSES, _REPORTED = 2, 50


@dataclass(frozen=True, slots=True)
class Row:
    """What one attack took."""

    name: str
    label: str
    size: int
    calls: int
    seconds: float = 0.0
    longest: float = 0.0
    memory: int = 0
    rule: str = ""
    failed: str = ""

    @property
    def factor(self) -> float:
        """Memory as a multiple of what the message may have copied."""
        return self.memory / (Limits().max_copies * self.size + FREE)

    @property
    def problem(self) -> str:
        if self.failed:
            return self.failed
        over = (
            ("memory", self.factor > FACTOR),
            ("time", self.seconds > MAX_SECONDS),
            ("one call", self.longest > MAX_LONGEST),
        )
        return ", ".join(name for name, is_over in over if is_over)

    @property
    def badness(self) -> float:
        if self.failed:
            return 1e9
        return max(self.factor / FACTOR, self.seconds / MAX_SECONDS, self.longest / MAX_LONGEST)


def constructors() -> dict[str, Entry]:
    """Return every entry that makes something."""
    return {
        name: entry
        for name, entry in PROFILE.entries.items()
        if entry.role in ("callable", "class", "enum")
    }


def sized(make: samples.Maker, *, large: bool) -> Iterator[Any]:
    """Yield what *make* makes: the smallest, and if *large* one whose pickle has some 50 kB."""
    made = [_made(make, n) for n in (_FIRST, _SECOND)]
    yield from made[0]
    if not large or not all(made):
        return
    sizes = [len(pickle.dumps(each, 5)) for (each,) in made]
    each = (sizes[1] - sizes[0]) / (_SECOND - _FIRST)
    for count in (int(LARGE * 0.9 / each), _SECOND) if each > 0.02 else (10**6,):
        for found in _made(make, count):
            if _is_loaded(pickle.dumps(found, 5)):
                yield found
                return


def _made(make: samples.Maker, n: int) -> list[Any]:
    try:
        made = make(n)
        pickle.dumps(made, 5)
    except Exception:  # a product of which these sizes make no value, or that pickle cannot write
        return []
    return [made]


def _is_loaded(data: bytes) -> bool:
    try:
        loads(data, profile=PROFILE)
    except SafeserError:
        return False
    return True


def _pickled(label: str, value: Any) -> Iterator[tuple[str, bytes]]:
    for protocol in (5, 2):
        try:
            yield label, pickle.dumps(value, protocol)
        except Exception:  # old protocols cannot write everything
            continue


def everything(only: str = "", *, large: bool = True) -> Iterator[tuple[str, bytes]]:
    """Yield the label and the pickle of every sample; estimators only if they are asked for."""
    for label, make in samples.makers():
        for value in sized(make, large=large):
            yield from _pickled(label, value)
    for label, value in samples.honest():
        yield from _pickled(label, value)
    for label, value in samples.estimators() if not only or "sklearn" in only else ():
        yield from _pickled(label, value)
    yield from samples.exceptions()
    yield from samples.rest()
    yield from samples.enums()


def attacks(pickles: Iterator[tuple[str, bytes]]) -> list[Template]:
    """Return one attack for each entry, kind of arguments and their size: small or large."""
    entries = constructors()
    found: dict[tuple[Any, ...], Template] = {}
    for label, data in pickles:
        for template in _templates(data, label):
            if template.name in entries and template.size < SIZE * 0.8:
                key = template.name, template.kind, template.size.bit_length() // 4
                if key not in found or found[key].size < template.size:
                    found[key] = template
    made = list(found.values())
    return made + list(_under_other_names(made, entries))


def _templates(data: bytes, label: str) -> list[Template]:
    try:
        return list(templates(data, label))
    except SafeserError:  # an honest value with a class that no profile lists
        return []


def _under_other_names(made: list[Template], entries: dict[str, Entry]) -> Iterator[Template]:
    """Yield the same calls of entries that only older releases of a library write."""
    of_shim: dict[tuple[str, str], list[Template]] = defaultdict(list)
    for template in made:
        entry = entries[template.name]
        of_shim[entry.make, entry.state].append(template)
    for name in entries.keys() - {template.name for template in made}:
        for template in of_shim[entries[name].make, entries[name].state]:
            yield template.named(name)


class Children:
    """The process that forks one for each attack."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "verification.sweep.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def run(self, attack: Any, *, measured: bool = False) -> Row | None:
        """Return what the attack takes; None if the call cannot be loaded by these libraries.

        :param measured: whether it counts too if nothing of it can be loaded.
        """
        data = attack.filling(SIZE)
        answer = self._ask(data if measured else attack.repeated(2), data)
        if "unloadable" in answer:
            return None
        calls = (len(data) - attack.size) // len(attack.unit)
        return Row(attack.name, attack.label, len(data), calls, **answer)

    def _ask(self, *frames: bytes) -> dict[str, Any]:
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        for frame in frames:
            pipe.write(struct.pack("<Q", len(frame)) + frame)
        pipe.flush()
        found: dict[str, Any] = json.loads(answers.read(struct.unpack("<Q", answers.read(8))[0]))
        return found


def sweep(only: str = "", *, quick: bool = False) -> list[Row]:
    """Run every attack, and return what each took.

    :param quick: with small arguments alone.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        planned = attacks(everything(only, large=not quick))
    planned = [each for each in planned if only in each.name or only in each.label]
    rows = all_of(planned, Children.run)
    swept = {row.name for row in rows}
    for name in sorted(constructors().keys() - swept):
        if only in name:
            rows.append(Row(name, "", 0, 0, failed="not swept"))
    return rows


def all_of(planned: list[Any], run: Callable[[Children, Any], Row | None]) -> list[Row]:
    """Return what each attack took; those over a bound are told as they come."""

    def part(attacks: list[Any]) -> list[Row]:
        rows: list[Row] = []
        with Children() as children:
            for number, attack in enumerate(attacks, 1):
                if (row := run(children, attack)) is not None:
                    rows.append(row)
                    for line in table([row] if row.problem else []):
                        print(line, file=sys.stderr, flush=True)
                if number % _REPORTED == 0:
                    print(f"{number} of {len(attacks)}", file=sys.stderr, flush=True)
        return rows

    with ThreadPoolExecutor(_PROCESSES) as pool:
        parts = [planned[at::_PROCESSES] for at in range(_PROCESSES)]
        return [row for rows in pool.map(part, parts) for row in rows]


def table(rows: list[Row]) -> Iterator[str]:
    """Yield the lines of a table."""
    for row in rows:
        yield (
            f"{row.factor:6.1f}x {row.memory / 1e6:7.1f} {row.seconds:6.2f}s"
            f" {row.longest * 1e3:5.0f}ms {row.calls:6}  {row.name} ({row.label})"
            f" {row.problem.upper()} {row.rule}"
        )


def main(description: str, sweep: Callable[..., list[Row]], what: str) -> int:
    """Sweep, print the worst, and return 1 if one is over the bounds."""
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--worst", type=int, default=40)
    options = parser.parse_args()
    begun = time.monotonic()
    rows = sorted(sweep(options.only, quick=options.quick), key=lambda row: -row.badness)
    print(f"{'memory':>7} {'MB':>7} {'total':>7} {'call':>7} {'calls':>6}  constructor (sample)")
    print("\n".join(table(rows[: options.worst])))
    bad = [row for row in rows if row.problem]
    print(
        f"{len({row.name for row in rows})} {what}, {len(rows)} attacks, {len(bad)} over the"
        f" bounds, of {len({row.name for row in bad})} {what}; {time.monotonic() - begun:.0f} s"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(__doc__, sweep, "constructors"))
