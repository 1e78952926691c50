"""Refuse words that the policy language does not have any more, and say what replaces them.

The one rule: a policy with such a word does not load, and no replacement is a grant of more: who
could have listed functions called is never advised to be given code in the same place.
"""

from __future__ import annotations

from safeser.errors import ConfigError
from safeser.values import ELEMENT

__all__ = ["moved_limit", "require_submission", "retired_profile"]

_ANALYSTS = (
    "People without code on this cluster look and fetch; they compute on a cluster of their own,"
    " whose confined workers take sealed calls of its 'authors': ready policy 'analysts', and"
    " docs/how-to/confined-workers.md."
)


def require_submission(word: str) -> None:
    """Refuse the submission of listed functions by its name.

    :raises ConfigError: if *word* is that.
    """
    if word == "approved":
        raise ConfigError(
            "'submission: approved' is gone, and with it tasks that call functions by their names",
            rule="config.moved",
            fix="Take 'submission' out, and what 'pickle: allow' lists for tasks to call."
            f" {_ANALYSTS}",
        )


def moved_limit(elements: object) -> tuple[str, str, str]:
    """Return message, rule and fix for a policy that limits *elements* and not memory."""
    size = elements * ELEMENT if type(elements) is int else "128MiB"
    return (
        "'limits: max_refs' is gone: a message is bounded by the memory that it takes",
        "config.moved",
        f"Write 'max_memory: {size}' in its place, at which lists of numbers may be longer.",
    )


def retired_profile(context: str) -> str:
    """Return what to write in *context* instead of a profile that held parts of graphs."""
    return f"Take it out of {context!r}, with what 'allow' lists there for tasks. {_ANALYSTS}"
