"""What inspect says of each profile is what judging by that profile says, however it is found."""

from __future__ import annotations

import collections
import pickle

from safeser.pickles import DATA_PROFILES, Profile, inspect
from safeser.pickles.judge import judge
from tests.samples.seeds import seeds


def test_the_first_problem_under_every_profile(asm):
    factory = pickle.dumps([collections.defaultdict(list)], 2)
    mixed = asm.list(asm.new("my:A"), asm.name("my:f"), asm.name("builtins:list"), asm.new("os:B"))
    many = [factory, asm.pickle(mixed), b"Px\n.", b"cbuiltins\nlist\n)R)R."]
    many += [seed[1:] for seed in seeds()[5::6]]
    problems = 0
    for data in many:
        for asked in ("data", "functions"):
            seen = inspect(data, profile=asked)
            for name in DATA_PROFILES:
                uses = judge(seen.program, Profile.named(name))
                told = [f"{use.name} is {use.role}: {use.problem}" for use in uses if use.problem]
                assert seen.verdicts[name] == (told[0] if told else "")
                problems += bool(told)
    assert problems > 100
