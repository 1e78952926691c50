"""Which of distributed's tests do not pass with safeser, and why; none of it is unintended.

The one rule: a test is listed by its id with a reason, in ``listings.toml``; what is not listed has
to pass.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

_LISTED = tomllib.loads(Path(__file__).with_name("listings.toml").read_text(encoding="utf-8"))


def _reason_by_id(part: str) -> dict[str, str]:
    groups = _LISTED[part]["tests"].items()
    return {test: reason for reason, tests in groups for test in tests.split()}


#: Reasons, by the part of the suite: ``protocol``, ``clusters`` and ``sealed``.
WHY = {part: _LISTED[part]["why"] for part in ("protocol", "clusters", "sealed")}

#: Reason by id, those of the protocol's tests by ``file::test``.
REASONS, EXCEPTIONS, SEALED = map(_reason_by_id, WHY)

#: They make views of a PickleBuffer, which CPython 3.11's garbage collector crashes on where a
#: cycle holds them, as the traceback of a failed test does. They count as failed.
NOT_RUN = frozenset(
    {"test_pickle.py::test_pickle_out_of_band", "test_pickle.py::test_pickle_empty"}
)

#: Those that chance decides, on ``tcp://`` as well: they count as exceptions, also in a run in
#: which they pass.
CHANCE = frozenset(test for test, reason in EXCEPTIONS.items() if reason == "race")

#: How many tests of each file are counted, and the ids of those that are not.
PASSED: dict[str, int] = _LISTED["stock"]["passed"]
NOT_COUNTED = frozenset(_LISTED["stock"]["not_counted"].split())
