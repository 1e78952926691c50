NOT_COUNTED = frozenset()
PASSED = {}
