"""Values from an untrusted sender: typed values, a restricted pickle, inspection without loading.

Run it: python examples/untrusted_values.py
"""

from __future__ import annotations

import dataclasses
import os
import pickle

import numpy as np

import safeser


@safeser.register_class(name="examples:Reading")  # of a module that is imported, it needs none
@dataclasses.dataclass
class Reading:
    """A class of one's own that travels without a pickle: its fields, checked by their types."""

    place: str
    values: list[float]


class Evil:
    """An object whose pickle runs a command when it is loaded."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("echo this must not run",)


def main() -> None:
    # 1. Typed values: no pickle on either side.
    sent = {"matrix": np.eye(2), "reading": Reading("roof", [21.5, 22.0])}
    header, frames = safeser.serialize(sent)
    got = safeser.deserialize(header, frames)
    print("typed values:", got["reading"], got["matrix"].tolist())

    # 2. A pickle from that sender: what is not listed is refused before it is imported.
    print("a pickle of plain data:", safeser.pickles.loads(pickle.dumps({"a": [1, 2]})))
    try:
        safeser.pickles.loads(pickle.dumps(Evil()))
    except safeser.PolicyDenied as error:
        print("refused:", error)

    # 3. What is in a pickle, without loading anything of it.
    print(safeser.pickles.inspect(pickle.dumps(Evil())).text())


if __name__ == "__main__":
    main()
