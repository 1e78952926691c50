"""Run many generated pickles past safeser and CPython; stop and go on as you like.

    python -m verification.differential --cases 10000000 --state FOLDER

Cases are numbered, and a case depends on its number and the seed alone. Progress is written to
FOLDER/state.json every few seconds; each disagreement goes into a file of its own beside it.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from random import Random

from verification.differential.case import make, outcome

_SAVED_EVERY = 10_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000, help="how many, from the first on")
    parser.add_argument("--seconds", type=float, help="stop before the last case after so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pool", type=float, default=0.05, help="share out of listed libraries")
    parser.add_argument("--state", type=Path, required=True, help="folder for progress and finds")
    options = parser.parse_args()
    options.state.mkdir(parents=True, exist_ok=True)
    saved = options.state / "state.json"
    state = {"seed": options.seed, "next": 0, "seconds": 0.0, "outcomes": {}}
    if saved.exists():
        state = json.loads(saved.read_text())
        if state["seed"] != options.seed:
            parser.error(f"{saved} belongs to seed {state['seed']}")
    counted: Counter[str] = Counter(state["outcomes"])
    start, before = time.monotonic(), state["seconds"]
    for number in range(state["next"], options.cases):
        data, buffers = make(Random(options.seed << 40 | number), pool=options.pool)
        result = outcome(data, buffers)
        counted[result] += 1
        if result.startswith("disagreement"):
            (options.state / f"case-{number}.pickle").write_bytes(data)
            (options.state / f"case-{number}.txt").write_text(f"{result}\n{buffers!r}\n")
        taken = time.monotonic() - start
        over = options.seconds is not None and taken > options.seconds
        if number % _SAVED_EVERY == _SAVED_EVERY - 1 or number == options.cases - 1 or over:
            spent = before + taken
            state = {"seed": options.seed, "next": number + 1, "seconds": spent}
            saved.write_text(json.dumps(state | {"outcomes": counted}, indent=1))
            bad = sum(count for name, count in counted.items() if name.startswith("disagreement"))
            print(
                f"{number + 1:,} of {options.cases:,}  {(number + 1) / spent:,.0f} a second  "
                f"{counted['accepted']:,} accepted  {bad} disagreements",
                flush=True,
            )
        if over:
            break
    print()
    for name, count in counted.most_common():
        print(f"{count:>12,}  {name}")
    return any(name.startswith("disagreement") for name in counted)


if __name__ == "__main__":
    raise SystemExit(main())
