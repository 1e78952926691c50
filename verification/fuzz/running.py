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


def options_of(description: str | None, seconds: int) -> tuple[argparse.Namespace, list[str]]:
    """Return the folder and seconds of the command line, and what is libFuzzer's own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=int, default=seconds)
    options, passed_on = parser.parse_known_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    return options, passed_on


def write_seeds(folder: Path, seeds: Iterable[bytes]) -> list[bytes]:
    """Put *seeds* where libFuzzer begins, and return them."""
    written = list(seeds)
    for number, seed in enumerate(written):
        (folder / f"seed-{number:04}").write_bytes(seed)
    return written


def fuzz(
    options: argparse.Namespace,
    passed_on: list[str],
    one_input: Callable[[bytes], None],
    mutate: Callable[[bytes, int, int], bytes],
    *,
    longest: int,
) -> None:
    """Fuzz *one_input* for the seconds of *options*; what breaks it stays in their folder.

    :param longest: input, in bytes.
    """
    arguments = [
        sys.argv[0],
        str(options.folder),
        f"-max_total_time={options.seconds}",
        f"-max_len={longest}",
        "-timeout=20",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
        f"-artifact_prefix={options.folder}{os.sep}crash-",
        *passed_on,
    ]
    atheris.Setup(arguments, one_input, custom_mutator=mutate)
    atheris.Fuzz()
