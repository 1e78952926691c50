"""Statements that are renewed or altered, on a clock that tests set."""

from __future__ import annotations

from dataclasses import replace

from safeser.dask.sealed.statement import LIFETIME, RENEWED_AFTER
from tests.dask.sealed.conftest import NOW, POLICY

#: With a second author, and one who looks.
TWO = POLICY.replace("  bob: ", "  carol: {groups: [engineers]}\n  bob: ", 1)

TOMORROW = NOW + LIFETIME


def later(signed, identity, after=RENEWED_AFTER):
    """Return *signed* renewed by *identity*, *after* so many seconds."""
    return signed.statement.renewed_by(identity, signed.statement.issued + after)


def altered(signed, identity, **changed):
    """Return a changed statement with a valid signature of *identity*."""
    statement = later(signed, identity).statement
    return replace(statement, **changed).signed_by(identity)
