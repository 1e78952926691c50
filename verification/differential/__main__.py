"""Run many generated pickles past safeser and CPython; stop and go on as you like.

    python -m verification.differential --cases 10000000 --state FOLDER [--pool SHARE]

Cases are numbered, and a case depends on its number and the seed alone (:mod:`verification.cases`).
"""

from __future__ import annotations

import argparse
from random import Random

from verification.cases import Case, Tool, main
from verification.differential.case import make, outcome, whole_seeds


def prepare(options: argparse.Namespace) -> Tool:
    whole_seeds()

    def case(number: int, chance: Random) -> Case:
        del number
        data, buffers = make(chance, pool=options.pool)
        return Case(data, buffers, repr(data))

    return Tool(case, outcome, each=20_000)


if __name__ == "__main__":
    raise SystemExit(main(__doc__, prepare, state=".differential", seconds=1e9, pool=0.05))
