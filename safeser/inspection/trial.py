"""Load the pickles of a file as ``safeser.pickles.loads`` does, to say whether it does.

The one rule: what was judged is loaded, by the profiles that the report names, and dropped. Where
that imports libraries, it is done in a process of its own, which a fault in one of them can end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from itertools import accumulate, pairwise

from safeser.errors import PayloadError, SafeserError
from safeser.gate.values import Limits
from safeser.pickles import loads
from safeser.pickles.names import shown

__all__ = ["load_all", "load_apart", "main"]

_PROGRAM = "from safeser.inspection.trial import main; main()"
_SAID = ("rule", "where", "fix", "limit")

#: A file of 1 GiB, the most that is held, loads in a tenth of this.
_MOST_SECONDS = 300


def load_all(
    pickles: Sequence[bytes], profiles: Sequence[str], limits: Limits
) -> SafeserError | None:
    """Load *pickles* one by one; return the error that loading ends in, or None."""
    for number, data in enumerate(pickles, 1):
        try:
            loads(data, profile=profiles, limits=limits)
        except SafeserError as error:
            if len(pickles) > 1:
                error.where = f"{error.where or 'byte 0'} of pickle {number}"
            return error
    return None


def load_apart(
    pickles: Sequence[bytes], profiles: Sequence[str], limits: Limits
) -> SafeserError | None:
    """Do as :func:`load_all` in a process of its own."""
    asked = {
        "profiles": [*profiles],
        "limits": {field.name: getattr(limits, field.name) for field in fields(limits)},
        "sizes": [len(data) for data in pickles],
    }
    try:
        # -P: in the folder of a file from somewhere else may be a numpy.py.
        ended = subprocess.run(  # noqa: S603 - this interpreter, and a program of this module
            [sys.executable, "-P", "-c", _PROGRAM, json.dumps(asked)],
            input=b"".join(pickles),
            capture_output=True,
            check=False,
            timeout=_MOST_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return PayloadError(
            f"loading it takes more than {_MOST_SECONDS} seconds",
            rule="inspect.loading",
            fix="Do not load it, and report this: loads should refuse such a file.",
        )
    last = ended.stdout.rpartition(b"\n")[2]
    if ended.returncode or not last:
        why = shown(ended.stderr.rstrip().rpartition(b"\n")[2].decode("ascii", "replace"))
        return PayloadError(
            f"the process that tried to load it ended with code {ended.returncode} ({why})",
            rule="inspect.loading",
            fix="Do not load it, and report this: loads should refuse such a file.",
        )
    told = json.loads(last)
    if told is None:
        return None
    error = PayloadError(told.pop("message"))
    for name in _SAID:
        setattr(error, name, told[name])
    return error


def main() -> None:
    """Load what :func:`load_apart` hands over, and print what it ends in."""
    asked, data = json.loads(sys.argv[1]), sys.stdin.buffer.read()
    places = pairwise(accumulate(asked["sizes"], initial=0))
    pickles = [data[begin:end] for begin, end in places]
    error = load_all(pickles, asked["profiles"], Limits(**asked["limits"]))
    told = error and {"message": error.message, **{name: getattr(error, name) for name in _SAID}}
    sys.stdout.write(f"\n{json.dumps(told)}")
