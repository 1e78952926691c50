"""Whether a statement counts: who signed it, for which cluster, and until when.

The one rule: a statement counts for its author alone, whose key the roster lists for signing, for
the cluster of the scheduler that hands it over, and between its issue and its expiry. All of that
is asked again when a task runs: it may have waited for long.
"""

from __future__ import annotations

import time
from functools import lru_cache

from safeser.channel.standing import Voices
from safeser.dask.sealed.statement import SignedStatement
from safeser.errors import PolicyDenied

__all__ = ["require_signed"]

#: Signatures that were found to hold and are remembered: one for each graph and renewal.
_REMEMBERED = 1024


def require_signed(signed: SignedStatement, voices: Voices, *, scheduler: str) -> str:
    """Return the author of *signed*, if it counts here and now.

    :param scheduler: principal of the scheduler that the graph was submitted to.
    :raises PolicyDenied: if it does not, with what its author or an operator can do about it.
    """
    statement = signed.statement
    if not _holds(signed.packed):
        raise _refused("sealed.signature", "its signature is not valid")
    if voices.author_of(statement.signer) != statement.author:
        raise _refused(
            "sealed.author",
            f"the roster lists no signing key of {statement.author!r} that made its signature",
            "Use a key that is active or verify-only in the roster, and submit it again.",
        )
    if voices.owner_of(statement.audience) != scheduler:
        raise _refused(
            "sealed.audience",
            f"it was signed for another scheduler than {scheduler!r}",
            "Submit it to this cluster.",
        )
    if not statement.is_current(time.time()):
        raise _refused(
            "sealed.expired",
            "its statement is over, or not valid yet by this machine's clock",
            "Submit it again; a client renews what it holds futures of.",
        )
    return statement.author


@lru_cache(maxsize=_REMEMBERED)
def _holds(packed: bytes) -> bool:
    return SignedStatement.parse(packed).verify()


def _refused(rule: str, why: str, fix: str = "") -> PolicyDenied:
    return PolicyDenied(f"a sealed graph does not count here: {why}", rule=rule, fix=fix)
