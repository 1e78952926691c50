"""A client of a stock cluster that runs no safeser: nothing that comes from there runs here.

Start one (`dask scheduler` and `dask worker tcp://127.0.0.1:8786`), then run it:
python examples/guarded_client.py tcp://127.0.0.1:8786
"""

from __future__ import annotations

import sys

import numpy as np

import safeser


def main(address: str) -> None:
    with safeser.Client(address, deserializers=["dask", "msgpack"]) as client:
        print("array:", client.submit(np.arange, 4).result().tolist())
        try:
            client.submit(lambda: 1 / 0).result()
        except ZeroDivisionError as error:
            print("an error of the task:", error)
        try:
            client.submit(lambda: print).result()
        except safeser.SafeserError as error:
            print("not here:", error)  # it could only come as a pickle


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: guarded_client.py ADDRESS, such as tcp://127.0.0.1:8786")
    main(sys.argv[1])
