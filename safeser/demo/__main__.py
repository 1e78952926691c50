"""``python -m safeser.demo``: the demo without the command line around it.

The one rule: a demo that could not run is told apart from one that failed: 2, not 1.
"""

from __future__ import annotations

import os
import sys

from safeser.demo.story import run
from safeser.errors import SafeserError

if __name__ == "__main__":
    try:
        code = run(directory=None, policy=None, environment=os.environ)
    except SafeserError as error:
        sys.stderr.write(f"safeser: {error}\n")
        code = 2
    raise SystemExit(code)
