"""Which of distributed's tests of clusters fail on ``safeser://``, and why; none is unintended."""

#: Reasons, in the words of docs/explanation/dask-suite.md.
WHY = {
    "traceback": "look into traceback objects; on safeser:// a failure comes with its text",
    "tls": "open tls:// or inproc:// themselves, which are closed in a process on safeser://",
    "tcp": "connect to an address that they write out as tcp://",
    "actor": "compare an actor's class with their own; here it is a class of that name",
    "metrics": "measure how long messages are compressed, which safeser:// does not do",
    "warning": "expect a class of warnings of their own, or the words of an error in a log",
    "race": "close a worker, and need it to be at a certain task when the scheduler hears of it",
}

_TESTS = {
    "traceback": """
        tests/test_client.py::test_traceback
        tests/test_client.py::test_get_traceback
        tests/test_client.py::test_gather_traceback
        tests/test_client.py::test_traceback_sync
        """,
    "tls": """
        tests/test_client.py::TestClientSecurityLoader::test_security_loader
        tests/test_client.py::TestClientSecurityLoader::test_security_loader_ignored_if_explicit_security_provided
        tests/test_client.py::TestClientSecurityLoader::test_security_loader_ignored_if_returns_none
        tests/test_security.py::test_require_encryption
        tests/test_security.py::test_tls_listen_connect
        tests/test_security.py::test_tls_temporary_credentials_functional
        """,
    "tcp": """
        tests/test_queues.py::test_queue_in_task
        tests/test_variable.py::test_variable_in_task
        """,
    "actor": """
        tests/test_actor.py::test_Actor
        tests/test_actor.py::test_future_dependencies
        """,
    "metrics": """
        shuffle/tests/test_metrics.py::test_dataframe
        shuffle/tests/test_metrics.py::test_rechunk
        """,
    "warning": """
        tests/test_client.py::test_warn_manual
        tests/test_client.py::test_warn_remote
        """,
    "race": """
        shuffle/tests/test_shuffle.py::test_restarting_during_transfer_raises_killed_worker
        """,
}

#: Reason by id.
EXCEPTIONS = {test: reason for reason, tests in _TESTS.items() for test in tests.split()}

#: Those among them that chance decides, on ``tcp://`` as well: they count as exceptions, also in a
#: run in which they pass.
CHANCE = frozenset(test for test, reason in EXCEPTIONS.items() if reason == "race")
