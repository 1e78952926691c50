"""The process of strangers and of bob: says what it is told to say, and reports what came back.

The one rule: whether code ran is judged by the starter, from the marker files; an attacker's own
word counts for one thing only, a secret that it read.

Arguments: ``bob`` (disarmed, with his key on ``safeser://``) or ``stranger`` (plain TCP).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safeser.demo.messages import BUILDERS, greet_with_pickle, say
from safeser.demo.speech import Speech

__all__ = ["attack", "main"]


async def attack(command: Mapping[str, Any]) -> dict[str, Any]:
    """Do one attack and return what came back."""
    address = command["address"]
    markers = [Path(marker) for marker in command["markers"]]
    options = {}
    if command.get("settings"):
        options["safeser"] = {"roles": {"client": command["settings"]}}
    builder = BUILDERS.get(command["name"])
    if builder is None:
        answers = [await greet_with_pickle(address, markers[0], options)]
    else:
        answers = await say(address, builder(markers, command["secret"]), options)
    return {
        "answers": [answer[:500] for answer in answers],
        "leaked": any(command["secret"] in answer for answer in answers),
    }


def main(kind: str) -> None:
    """Serve attack after attack."""
    speech = Speech.of_this_process()
    if kind == "bob":
        from safeser.demo.rogue import disarm_bob

        disarm_bob()
    for command in speech.commands():
        try:
            speech.tell("done", **asyncio.run(attack(command)))
        except Exception as error:  # whatever it is, the starter must hear of it
            speech.tell("failed", reason=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
