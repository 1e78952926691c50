"""Globals that an operator or a program allows by name: what may be allowed, and what a name means.

The one rule: an allowed name is exact, is on no list of names that reach code, and stands for the
object of that very name. Every entrance (a policy's ``allow``, ``Profile.allowing``, entries of
profiles, registered classes) asks this package.
"""

from safeser.allowed.allowed import ALLOWED_ROLES, Allowed
from safeser.allowed.names import PLAIN, check_allowed, own_object
from safeser.allowed.refused import refusal

__all__ = [
    "ALLOWED_ROLES",
    "PLAIN",
    "Allowed",
    "check_allowed",
    "own_object",
    "refusal",
]
