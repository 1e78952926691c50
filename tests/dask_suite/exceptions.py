"""Which of distributed's tests of clusters fail on ``safeser://``, and why; none is unintended."""

WHY: dict[str, str] = {}
_TESTS: dict[str, str] = {}

#: Reason by id.
EXCEPTIONS = {test: reason for reason, tests in _TESTS.items() for test in tests.split()}
