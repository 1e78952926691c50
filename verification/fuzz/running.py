"""How every fuzz target runs: libFuzzer's arguments, its seeds, and what it keeps.

The one rule: whatever a target imports for honest input is imported before the first mutation.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris


def fuzz(
    description: str | None,
    seconds: int,
    seeds: Iterable[bytes],
    warm_up: Callable[[], None],
    one_input: Callable[[bytes], None],
    mutate: Callable[[bytes, int, int], bytes],
    *,
    longest: int,
) -> None:
    """Fuzz *one_input* from *seeds* on; what breaks it stays in the folder of the command line.

    What the command line has besides is libFuzzer's own.

    :param longest: input, in bytes.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=int, default=seconds)
    options, passed_on = parser.parse_known_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds):
        (options.folder / f"seed-{number:04}").write_bytes(seed)
    warm_up()
    arguments = [
        *(sys.argv[0], str(options.folder), f"-max_total_time={options.seconds}"),
        *(f"-max_len={longest}", "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1"),
        *(f"-artifact_prefix={options.folder}{os.sep}crash-", *passed_on),
    ]
    atheris.Setup(arguments, one_input, custom_mutator=mutate)
    atheris.Fuzz()
