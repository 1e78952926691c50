"""Write ``safeser/audit/outputs/rules.txt``: each rule that the code names.

python -m tests.audit.outputs.declared
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docs.theme.reference import declared
from safeser import errors
from safeser.channel.standing import SENTENCES
from safeser.policy.questions.shadow import PERMIT

__all__ = ["PLACE", "text"]

PLACE = Path(__file__).parents[3] / "safeser" / "audit" / "outputs" / "rules.txt"

#: Those of records that no error names.
RECORDED = ("policy.drift", "policy.observe", "shadow.unread")
FILES = ("identity", "policy", "roster", "shadow")


def text() -> str:
    """Return the rules as the file has them."""
    rules = {*declared(), *RECORDED, *SENTENCES, PERMIT, *_defaults()}
    rules |= {f"suite.{word}" for word in ("authenticate", "encrypt")}  # of envelope version 1
    rules |= {f"{file}.adopted" for file in FILES}
    return "".join(f"{rule}\n" for rule in sorted(rules))


def _defaults() -> Iterator[str]:
    for each in vars(errors).values():
        if isinstance(each, type) and issubclass(each, errors.SafeserError):
            yield each.default_rule


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="ascii")
