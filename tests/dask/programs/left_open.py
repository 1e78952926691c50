"""Two clients that are left open: what became of them is printed once the audit log is closed.

Handlers run in the reverse order of their registration, and safeser's log registers its own when
it is imported.
"""

import atexit
import json

CLIENTS = []
atexit.register(lambda: print(json.dumps([each.status for each in CLIENTS])))

import sys  # noqa: E402

import safeser  # noqa: E402

CLIENTS += [safeser.Client(sys.argv[1]) for _ in range(2)]
