"""Run many malformed headers and frames; see the package.

python -m verification.malformed --cases 100000 --seed 1 --only arrays
"""

from __future__ import annotations

import argparse
import pprint
import sys
import time

from verification.malformed.parent import run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="how many, over all examples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="examples whose name holds this; * is anything")
    parser.add_argument("--case", type=int, help="this one of each of those examples alone")
    parser.add_argument("--start", type=int, default=0, help="skip the cases before this position")
    parser.add_argument("--show", action="store_true", help="print the case first")
    options = parser.parse_args()
    if options.show and options.case is not None:
        _show(options.only, options.seed, options.case)
    began = time.monotonic()
    outcome = run(
        cases=options.cases,
        seed=options.seed,
        only=options.only,
        case=options.case,
        start=options.start,
    )
    print(outcome)
    print(f"\n{len(outcome.broken)} broken in {time.monotonic() - began:.0f} s")
    return bool(outcome.broken)


def _show(only: str, seed: int, number: int) -> None:
    from tests.samples.values import collect
    from verification.malformed.child import pool_of
    from verification.malformed.mutate import make

    sys.setrecursionlimit(20_000)  # for what is nested deeper than readers go
    pool = pool_of(collect()[0])
    for name in (name for name in pool if only in name):
        case = make(name, seed, number, pool)
        print(name)
        pprint.pp(case.done)
        pprint.pp(case.raw or case.header)
        pprint.pp(case.frames)


if __name__ == "__main__":
    raise SystemExit(main())
