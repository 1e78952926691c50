"""What a file is said to name is what the loaders of its format look up, and where they end."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from joblib.numpy_pickle import NumpyArrayWrapper, NumpyUnpickler

from tests.inspection.forging import joblib_file, looked_at


class Made:
    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass


class Dtype:
    """What joblib asks of a dtype. NumPy's own would believe a forged state, and crash."""

    def __init__(self, code: str, *_: Any) -> None:
        self.dtype = np.dtype(code)
        self.itemsize = self.dtype.itemsize

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.hasobject = bool(state[7] & 1)


STANDING_IN = {
    "joblib.numpy_pickle:NumpyArrayWrapper": NumpyArrayWrapper,
    "numpy:ndarray": np.ndarray,
    "numpy:dtype": Dtype,
}


class Recording(NumpyUnpickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__("", file, False)
        self.seen: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.seen.add(f"{module}:{name}")
        return STANDING_IN.get(f"{module}:{name}", Made)


VALUES = (
    [np.arange(3), "x", np.arange(2.0)],
    {"o": np.array([None, "x"], dtype=object), "n": np.zeros((2, 2), order="F")},
)
FILES = [joblib_file(value, protocol=n) for value in VALUES for n in (2, 3, 4, 5)]


def check(data: bytes) -> None:
    report = looked_at(data)
    if report.verdict.code or report.title != "a joblib file":
        return
    file = io.BytesIO(data)
    reader = Recording(file)
    try:
        reader.load()
    except (TypeError, ValueError, LookupError, AttributeError, OverflowError):
        pass  # values that NumPy refuses; what was looked up until then counts all the same
    else:
        assert file.tell() == len(data)
    assert reader.seen <= {use.name for use in report.globals}


def test_joblib_reads_what_was_judged():
    for data in FILES:
        assert looked_at(data).verdict.code == 0
        check(data)


@given(
    data=st.sampled_from(FILES),
    changes=st.lists(st.tuples(st.integers(0, 999), st.binary(max_size=3)), max_size=3),
    cuts=st.lists(st.tuples(st.integers(0, 999), st.integers(0, 4)), max_size=1),
)
def test_joblib_reads_what_was_judged_of_mutations(data, changes, cuts):
    forged = bytearray(data)
    for at, new in changes:
        at %= len(forged)
        forged[at : at + len(new)] = new
    for at, size in cuts:
        at %= len(forged)
        del forged[at : at + size]
    check(bytes(forged))
