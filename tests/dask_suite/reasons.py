"""Why tests of distributed's do not pass with safeser's functions; none of it is unintended."""

WHY: dict[str, str] = {}

REASONS: dict[str, str] = {}

#: They make views of a PickleBuffer, which CPython 3.11's garbage collector crashes on where a cycle
#: holds them, as the traceback of a failed test does. They count as failed.
NOT_RUN = frozenset({"test_pickle.py::test_pickle_out_of_band", "test_pickle.py::test_pickle_empty"})
