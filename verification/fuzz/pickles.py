"""A coverage-guided fuzz target for restricted pickle; run it with ``make fuzz``.

The one rule it checks: any bytes give an object that can be used, or a SafeserError; nothing is
imported on the way. libFuzzer keeps what reached new code in a folder, so a run can be resumed.

    python -m verification.fuzz.pickles FOLDER [--seconds 3600] [any flag of libFuzzer]
"""

from __future__ import annotations

import contextlib
import importlib
import random
import sys

import atheris

with atheris.instrument_imports(include=["safeser.pickles"]):
    from safeser import pickles
    from safeser.pickles.shims import registry

    for _module in registry._MODULES.values():
        try:
            importlib.import_module(_module)
        except ImportError:
            continue  # its library is not installed here

from safeser.errors import SafeserError
from safeser.gate.values import Limits
from tests.samples import seeds
from verification.differential.programs import by_opcodes
from verification.fuzz import running

LIMITS = Limits(max_bytes=1 << 20, max_memory=20_000 << 7)
BUFFERS = (b"", bytes(64), bytearray(range(256)), memoryview(bytes(1024)))
PROFILE = pickles.Profile.named(*pickles.DATA_PROFILES)


class Escaped(Exception):
    """A pickle did something that no pickle may do."""


def warm_up() -> None:
    """Load what the profiles need once: whatever is imported after that, a pickle asked for."""
    for entry in PROFILE.entries.values():
        for name in filter(None, (entry.make, entry.state)):
            try:
                registry.shim(name)
            except SafeserError:
                continue  # its library is not installed here
    for seed in seeds.seeds():
        one_input(seed, strict=False)
    # pandas imports it for business days whose calendar is none.
    with contextlib.suppress(ImportError):
        importlib.import_module("pandas.tseries.holiday")


def one_input(data: bytes, *, strict: bool = True) -> None:
    """Load one input: the low two bits of its first byte say how many buffers come with it."""
    if not data:
        return
    given = [BUFFERS[number] for number in range(data[0] & 3)]
    body = data[1:]
    before = len(sys.modules)
    try:
        loaded = pickles.loads(body, buffers=given, profile=PROFILE, limits=LIMITS)
    except SafeserError as error:
        if not error.rule:
            raise Escaped("a refusal without a rule") from error
    else:
        try:
            repr(loaded)
        except NotImplementedError as error:
            # pandas shows no date in a time zone that Python's own dates do not reach.
            if "outside the range of Python's standard library" not in str(error):
                raise
        pickles.check(body, buffers=len(given), profile=PROFILE, limits=LIMITS)
    with contextlib.suppress(SafeserError):
        pickles.inspect(body, profile=PROFILE, limits=LIMITS)
    if strict and len(sys.modules) != before:
        raise Escaped("a pickle imported something")


def mutate(data: bytes, max_size: int, seed: int) -> bytes:
    """Half of the time, change a pickle by whole opcodes; else leave it to libFuzzer."""
    chance = random.Random(seed)
    if chance.random() < 0.5 or len(data) < 3:
        return atheris.Mutate(data, max_size)
    made = by_opcodes(data[1:], chance, chance.choice(SEEDS)[1:])
    return (data[:1] + made)[:max_size]


SEEDS = seeds.seeds()


if __name__ == "__main__":
    running.fuzz(__doc__, 3600, SEEDS, warm_up, one_input, mutate, longest=4096)
