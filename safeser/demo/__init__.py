"""``safeser demo``: a real cluster under policy, real work, real attacks, and what came of them.

The one rule: it claims nothing that it did not just see happen; a step that does not come out as
said ends it with the reason, and nothing is left running.
"""

from __future__ import annotations

__all__: list[str] = []
