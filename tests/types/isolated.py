"""Pickles that may end a process, loaded and used in a process of their own each.

The one rule: whatever a case does, the caller gets one line that says what became of it.
"""

from __future__ import annotations

import base64
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import warnings
from typing import Any

__all__ = ["PROFILE", "outcome_of", "outcomes_of"]

#: Every profile that a policy can grant for data.
PROFILE = ("data", "numpy", "pandas", "scipy", "sklearn", "exceptions", "functions")
SECONDS = 30
MEMORY = 4 << 30


def outcomes_of(cases: list[dict[str, Any]]) -> dict[str, str]:
    """Return what became of each of *cases*, by name: ``refused by RULE``, ``used``, or its end."""
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        timeout=SECONDS * len(cases) + 60,
    )
    outcomes: dict[str, str] = json.loads(done.stdout)
    return outcomes


def outcome_of(case: dict[str, Any]) -> str:
    """Load *case* here, and use what comes of it."""
    from safeser import pickles
    from safeser.errors import SafeserError
    from tests.samples.uses import uses

    buffers = [bytearray(size) for size in case["buffers"]]
    try:
        found = pickles.loads(base64.b64decode(case["pickle"]), buffers=buffers, profile=PROFILE)
    except SafeserError as error:
        return f"refused by {error.rule}"
    for use in uses(found):
        try:
            use()
        except Exception:  # whatever Python answers is an answer
            continue
    return "used"


def _forked(case: dict[str, Any]) -> str:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        try:
            os.write(writing, outcome_of(case).encode())
        except BaseException as error:
            os.write(writing, f"raised {type(error).__name__}".encode())
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as answer:
        said = answer.read().decode()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"ended by {signal.Signals(os.WTERMSIG(status)).name}"
    return said


def main() -> None:
    # Before the first fork: what each case would import again.
    import numpy  # noqa: F401
    import pandas  # noqa: F401
    import pyarrow  # noqa: F401

    faulthandler.disable()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps({case["name"]: _forked(case) for case in json.load(sys.stdin)}))


if __name__ == "__main__":
    main()
