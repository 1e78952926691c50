"""Shorten names in messages, and keep each part of a message on its own line.

The one rule: a name loses its middle, since both of its ends tell it from others. What a message
tells its reader to write is never shortened.
"""

from __future__ import annotations

__all__ = ["legible", "on_one_line", "shortened"]

#: Characters of a name that a message shows, where its caller says nothing else.
_SHOWN = 80


def shortened(name: str, most: int = _SHOWN) -> str:
    """Return *name* in at most *most* characters, with dots in place of its middle."""
    if len(name) <= most:
        return name
    end = (most - 3) // 2
    return f"{name[: most - 3 - end]}...{name[-end:]}"


def on_one_line(text: str) -> str:
    """Return *text* without line breaks and without what would control a terminal.

    No part of a message may pass for another part of it.
    """
    line = " ".join(str.splitlines(text))
    return line if line.isprintable() else "".join(c if c.isprintable() else "?" for c in line)


def legible(name: str, most: int = _SHOWN) -> str:
    """Return a peer's *name* shortened, without what would control a terminal."""
    return "".join(filter(str.isprintable, shortened(name, most)))
