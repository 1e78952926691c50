"""Standard output and syslog: one record is one line or message, whatever its fields hold."""

from __future__ import annotations

import json
import os
import re
import socket

import pytest

from safeser.audit.outputs.lines import MAX_MESSAGE, StandardOutput, Syslog
from safeser.audit.record import Record

#: PRI, version, timestamp, host, application, process, message id, no structured data, message.
RFC_5424 = re.compile(
    rb"<(\d{1,3})>1 (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z) ([!-~]{1,255}) (safeser)"
    rb" (\d+) ([!-~]{1,32}) - (\{[ -~]*\})"
)

HOSTILE = [
    "a\nb",
    "\r\n<14>1 2026-01-01T00:00:00Z evil app 1 admit - {}",
    '"] [evil@1 a="b"]',
    '"}\n{"event":"admit","permitted":true}',
    "\x00\x1b[2J\x7f\x85\u2028\u202e\ud800",
    "]" * 300,
    "\\",
]


def record(**fields):
    said = {"event": "refuse", "permitted": False, "log": "alice", "file": "f", **fields}
    return Record(7, 1_795_000_000_000_000, "event", said, b"")


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["where", "event", "rule", "log"])
def test_a_hostile_value_is_one_line_of_standard_output(field, text):
    ours, theirs = os.pipe()
    StandardOutput(theirs).send([record(**{field: text}), record()])
    os.close(theirs)
    with os.fdopen(ours, "rb") as out:
        data = out.read()
    first, second, end = data.split(b"\n")
    assert end == b""
    assert json.loads(first)[field] == text
    assert json.loads(second)["sequence"] == 7
    assert all(0x20 <= byte < 0x7F for byte in first)


def test_a_pipe_that_nobody_reads_any_more_is_an_os_error():
    ours, theirs = os.pipe()
    os.close(ours)
    with pytest.raises(OSError):
        StandardOutput(theirs).send([record()])
    os.close(theirs)


@pytest.fixture(params=["unix", "udp"])
def daemon(request, tmp_path):
    """A socket that receives datagrams, and its address."""
    if request.param == "unix":
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        made.bind(str(tmp_path / "log"))
        address = str(tmp_path / "log")
    else:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind(("127.0.0.1", 0))
        address = made.getsockname()
    made.settimeout(10)
    with made:
        yield made, address


def test_syslog_messages_have_the_form_of_rfc_5424(daemon):
    receiver, address = daemon
    sink = Syslog(address)
    sink.send([record(), record(permitted=True, event="admit")])
    refused, admitted = receiver.recv(65_536), receiver.recv(65_536)
    found = RFC_5424.fullmatch(refused)
    assert found is not None, refused
    assert int(found[1]) == 10 * 8 + 4  # authpriv, warning
    assert found[2] == b"2026-11-18T11:06:40.000000Z"
    assert found[6] == b"refuse"
    assert json.loads(found[7])["log"] == "alice"
    found = RFC_5424.fullmatch(admitted)
    assert (int(found[1]), found[6]) == (10 * 8 + 6, b"admit")
    sink.close()


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("field", ["where", "event", "rule"])
def test_a_hostile_value_forges_no_part_of_a_message(daemon, field, text):
    receiver, address = daemon
    sink = Syslog(address)
    sink.send([record(**{field: text})])
    found = RFC_5424.fullmatch(receiver.recv(65_536))
    assert found is not None
    assert json.loads(found[7])[field] == text
    sink.close()


def test_a_message_that_no_receiver_takes_is_shortened(daemon):
    receiver, address = daemon
    sink = Syslog(address)
    names = ["x" * 250] * 64
    sink.send([record(names=names, sender="s" * 1_000, rule="context.none", bytes=5)])
    data = receiver.recv(65_536)
    assert len(data) <= MAX_MESSAGE
    said = json.loads(RFC_5424.fullmatch(data)[7])
    assert (said["shortened"], said["rule"], said["sequence"]) == (True, "context.none", 7)
    assert said["sender"] == "s" * 256
    sink.close()


def test_a_daemon_that_starts_again_gets_what_comes_then(tmp_path):
    place = str(tmp_path / "log")
    sink = Syslog(place)
    with pytest.raises(OSError):
        sink.send([record()])
    for _ in range(2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
            made.bind(place)
            made.settimeout(10)
            sink.send([record()])
            assert made.recv(65_536)
        os.unlink(place)
        with pytest.raises(OSError):
            sink.send([record()])
    sink.close()
