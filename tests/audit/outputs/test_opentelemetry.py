"""OpenTelemetry: what an exporter gets of a record, and which one a name of an output means."""

from __future__ import annotations

import json

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter

from safeser.audit.outputs.configured import sink
from safeser.audit.outputs.feed import Outputs
from safeser.audit.outputs.opentelemetry import OpenTelemetry
from safeser.audit.record import Record


def test_fields_are_attributes_and_the_line_is_the_body(make):
    exporter = InMemoryLogRecordExporter()
    log = make(outputs=Outputs([OpenTelemetry(exporter)]))
    log.record({"event": "admit", "sender": "alice", "permitted": True, "bytes": 5})
    log.record({"event": "refuse", "sender": "bob\n\x1b", "permitted": False, "names": ["a", "b"]})
    log.count("alice", "scheduler", "identity", "permit", True)
    log.close()
    found = [each.log_record for each in exporter.get_finished_logs()]
    assert [each.event_name for each in found] == [
        "safeser.genesis",
        "safeser.admit",
        "safeser.refuse",
        "safeser.counts",
        "safeser.close",
    ]
    admitted, refused = found[1:3]
    assert admitted.severity_number is SeverityNumber.INFO
    assert refused.severity_number is SeverityNumber.WARN
    assert admitted.attributes["safeser.permitted"] is True
    assert admitted.attributes["safeser.bytes"] == 5
    assert refused.attributes["safeser.names"] == ["a", "b"]
    assert refused.attributes["safeser.sender"] == "bob\n\x1b"  # a value, in no line
    assert json.loads(refused.body)["sender"] == "bob\n\x1b"
    assert "\n" not in refused.body
    assert admitted.timestamp == 1_795_000_000_000_000_000
    [first, *_] = exporter.get_finished_logs()
    assert first.resource.attributes["service.name"] == "safeser"


def test_an_exporter_that_fails_is_an_os_error():
    exporter = InMemoryLogRecordExporter()
    exporter.shutdown()
    with pytest.raises(OSError, match="exporter"):
        OpenTelemetry(exporter).send([Record(0, 0, "close", {}, b"")])


def test_records_go_to_the_collector_that_is_named():
    made = sink("otlp:http://127.0.0.1:4318/v1/logs")
    assert made._exporter._endpoint == "http://127.0.0.1:4318/v1/logs"
