"""Sentences about logs."""

from __future__ import annotations

import os
import tempfile
from concurrent.futures.process import BrokenProcessPool
from types import SimpleNamespace
from unittest import mock

from safeser.audit import AuditKey, AuditLog
from safeser.audit.compressed import Unpacking
from safeser.audit.record import _decoded
from safeser.audit.report import Expected
from safeser.audit.state import checked_policy
from safeser.audit.verification import file
from safeser.gate.chain import Head
from tests.sentences.sentence import Sentence

EMPTY = SimpleNamespace(read=lambda count, at: b"", place="log")


def ended_while_it_verified() -> None:
    with mock.patch.object(file, "ProcessPoolExecutor") as pool:
        pool.return_value.__enter__.return_value.map.side_effect = BrokenProcessPool
        pool.return_value.__exit__.return_value = False
        list(file.verdicts(SimpleNamespace(path="log"), [1, 2], 2))


def opened(mode: int = 0o700, **options: object) -> AuditLog:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, mode)
        key = AuditKey.new()
        return AuditLog.open(folder, key=key, principal="a", **options)  # type: ignore[arg-type]


ROWS = [
    Sentence(
        "audit.clock", lambda: opened(clock=lambda: -1), "the clock is not between 1970 and 9999"
    ),
    Sentence("audit.head", lambda: Head.decode(b"x", b"k"), "this is not a head of an audit file"),
    Sentence("audit.record", lambda: _decoded(b"x"), "a line is not a record"),
    Sentence(
        "config.audit-durability",
        lambda: opened(durability="memory"),
        "durability must be 'kernel' or 'fsync'",
    ),
    Sentence(
        "config.audit-head",
        lambda: Expected.parse("x"),
        "this is not the head of a log as verification prints it",
    ),
    Sentence(
        "config.audit-policy",
        lambda: checked_policy(("p", True, "")),
        "a policy has a name and a revision",
    ),
    Sentence(
        "audit.compressed",
        lambda: Unpacking._next(SimpleNamespace(_at=0), EMPTY),
        "a compressed log file is cut short",
    ),
    Sentence("audit.verify", ended_while_it_verified, "a process that verified was ended"),
    Sentence(
        "audit.directory",
        lambda: opened(0o777),
        "the directory of the log can be written by others",
    ),
]
