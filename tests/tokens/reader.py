"""Load pickles as a worker does, and print their tokens as one line of JSON."""

from __future__ import annotations

import json
import pickle
import sys

import safeser


def main():
    found = {}
    for name, data in json.load(sys.stdin).items():
        try:
            found[name] = safeser.tokenize(pickle.loads(bytes.fromhex(data)))
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
