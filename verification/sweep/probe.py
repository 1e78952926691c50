"""A second client: asks a scheduler for its identity again and again, and times the answers.

``python -m verification.sweep.probe ADDRESS KEYS POLICY PRINCIPAL``. For each line that it reads,
it prints the longest time since the line before, in seconds, and the number of answers, as JSON.
"""

from __future__ import annotations

import json
import select
import sys
import time
from pathlib import Path

from safeser.policy import Policy
from tests.dask.live.rig import Silent
from tests.dask.live.wires import Sealing, channel_of

#: Between an answer and the next question.
_PAUSE = 0.001


def main(address: str, keys: str, policy: str, principal: str) -> None:
    channel = channel_of(Path(keys), principal, Policy.load(policy), Silent())
    worst, count = 0.0, 0
    with Sealing.to(address, channel) as wire:
        while True:
            began = time.perf_counter()
            wire.ask({"op": "identity", "n_workers": 0, "reply": True})
            worst, count = max(worst, time.perf_counter() - began), count + 1
            if select.select([sys.stdin], [], [], _PAUSE)[0]:
                if not sys.stdin.readline():
                    return
                print(json.dumps([worst, count]), flush=True)
                worst, count = 0.0, 0


if __name__ == "__main__":
    main(*sys.argv[1:])
