"""Refuse words that the policy language does not have any more, and say what replaces them.

The one rule: a policy with such a word does not load, and no replacement is a grant of more: who
could have listed functions called is never advised to be given code in the same place.
"""

from __future__ import annotations

from safeser.errors import ConfigError

__all__ = ["require_submission", "retired_profile"]

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


def retired_profile(context: str) -> str:
    """Return what to write in *context* instead of a profile that held parts of graphs."""
    return f"Take it out of {context!r}, with what 'allow' lists there for tasks. {_ANALYSTS}"
