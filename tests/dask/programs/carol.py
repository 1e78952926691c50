"""What an engineer leaves on a shared cluster for others to look at. Run as a program."""

from __future__ import annotations

import json
import sys

import numpy as np
from dask.bag.core import no_result
from distributed import Variable

import safeser

with safeser.Client(sys.argv[1], timeout=30) as client:
    client.wait_for_workers(2, timeout=60)
    squares = client.submit(lambda: np.arange(4) ** 2, key="squares")
    Variable("squares").set(squares)
    client.publish_dataset(squares, name="published")
    client.set_metadata("owner", "carol")
    # What a bag's empty parts are, on their way from one worker to another.
    one, other = client.scheduler_info(n_workers=-1)["workers"]
    empty = client.submit(lambda: no_result, workers=[one])
    moved = client.submit(lambda part: part is no_result, empty, workers=[other])
    print(
        json.dumps(
            {
                "squares": squares.result(timeout=30).tolist(),
                "empty part moved": moved.result(timeout=30),
            }
        )
    )
