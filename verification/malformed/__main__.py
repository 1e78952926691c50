"""Run many malformed headers and frames; see the package.

python -m verification.malformed --cases 100000 --seed 1 --only arrays
"""

from __future__ import annotations

import argparse
import pprint
import sys
import time

from tests.samples.values import collect
from verification.malformed.child import pool_of
from verification.malformed.mutate import make
from verification.malformed.parent import names, run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000, help="how many, over all examples")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="examples whose name holds this; * is anything")
    parser.add_argument("--case", type=int, help="this one of each of those examples alone")
    parser.add_argument("--start", type=int, default=0, help="skip the cases before this position")
    parser.add_argument("--show", action="store_true", help="print the case first")
    options = parser.parse_args()
    start, end = options.start, options.cases
    if options.case is not None:
        chosen = names(options.only)
        start, end = options.case * len(chosen), (options.case + 1) * len(chosen)
        for name in chosen if options.show else ():
            _show(name, options.seed, options.case)
    began = time.monotonic()
    outcome = run(cases=end, seed=options.seed, only=options.only, start=start)
    print(outcome)
    print(f"\n{len(outcome.broken)} broken in {time.monotonic() - began:.0f} s")
    return bool(outcome.broken)


def _show(name: str, seed: int, number: int) -> None:
    sys.setrecursionlimit(20_000)  # for what is nested deeper than readers go
    case = make(name, seed, number, pool_of(collect()[0]))
    print(name)
    pprint.pp(case.done)
    pprint.pp(case.raw or case.header)
    pprint.pp(case.frames)


if __name__ == "__main__":
    raise SystemExit(main())
