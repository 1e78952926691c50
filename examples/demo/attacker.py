"""The program of strangers and of bob: sends the messages of one attack, and reports the answers.

Whether code ran is judged by the demo, from the marker files. An attacker's own report counts for
one thing only: a secret that it read.

Arguments: ``bob`` (with his key on ``safeser://``, and without the client's own checks) or
``stranger`` (plain TCP).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from examples.demo.messages import BUILDERS, greet_with_pickle, say
from examples.demo.pipe import Pipe

__all__ = ["attack", "main"]


async def attack(command: Mapping[str, Any]) -> dict[str, Any]:
    """Send the messages of one attack and return the answers."""
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
    """Serve one attack after another."""
    pipe = Pipe.of_this_process()
    if kind == "bob":
        from examples.demo.rogue import bypass_client_checks

        bypass_client_checks()
    pipe.serve(lambda command: asyncio.run(attack(command)))


if __name__ == "__main__":
    main(sys.argv[1])
