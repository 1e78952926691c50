"""OpenTelemetry: an exporter in memory, and OTLP over HTTP to a collector that counts."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
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


class Collector(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.bodies: list[str] = []


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            data = gzip.decompress(data)
        request = ExportLogsServiceRequest.FromString(data)
        self.server.bodies += [  # type: ignore[attr-defined]
            record.body.string_value
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        return


def test_records_arrive_at_a_collector(make):
    with Collector() as collector:
        serving = threading.Thread(target=collector.serve_forever)
        serving.start()
        try:
            address = f"http://127.0.0.1:{collector.server_port}/v1/logs"
            log = make(outputs=Outputs([sink(f"otlp:{address}")]))
            for n in range(10):
                log.record({"event": "admit", "sender": "alice", "permitted": True, "bytes": n})
            log.close()
        finally:
            collector.shutdown()
            serving.join()
    kinds = [json.loads(body)["type"] for body in collector.bodies]
    assert kinds == ["genesis", *["event"] * 10, "close"]
