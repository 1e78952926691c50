"""Records as logs of OpenTelemetry, by the exporters of its SDK.

The one rule: the exporter is called in the thread of this output, and what it says of a batch is
what counts: the SDK's own batches would drop records without a word.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from safeser.audit.outputs.lines import json_line
from safeser.audit.record import Record

__all__ = ["OpenTelemetry", "over_http"]

_PREFIX = "safeser."


class OpenTelemetry:
    """Logs of OpenTelemetry: the body is the record's line of JSON, its fields are attributes.

    :param exporter: sends them.
    """

    name = "otlp"

    def __init__(self, exporter: LogRecordExporter) -> None:
        self._exporter = exporter
        self._resource = _resource()
        self._scope = InstrumentationScope("safeser.audit")

    def send(self, records: Sequence[Record]) -> None:
        """Export *records*.

        :raises OSError: if the exporter fails.
        """
        batch = [
            ReadableLogRecord(
                log_record=_logged(record),
                resource=self._resource,
                instrumentation_scope=self._scope,
            )
            for record in records
        ]
        if self._exporter.export(batch) is not LogRecordExportResult.SUCCESS:
            raise OSError("the exporter failed")

    def close(self) -> None:
        """Let the exporter end."""
        self._exporter.shutdown()


def _resource() -> Resource:
    """Return what describes this process; what the environment says of it comes first."""
    found = Resource.create({"host.name": socket.gethostname()})
    if str(found.attributes.get("service.name", "")).startswith("unknown_service"):
        found = found.merge(Resource({"service.name": "safeser"}))
    return found


def _logged(record: Record) -> LogRecord:
    refused = record.fields.get("permitted") is False
    event = record.text("event") or record.type
    return LogRecord(
        timestamp=record.time * 1_000,
        observed_timestamp=record.time * 1_000,
        severity_number=SeverityNumber.WARN if refused else SeverityNumber.INFO,
        severity_text="WARN" if refused else "INFO",
        body=json_line(record),
        attributes=_attributes(record),
        event_name=f"{_PREFIX}{event}",
    )


def _attributes(record: Record) -> dict[str, Any]:
    """Return the fields that an attribute can be: single values, and lists of texts."""
    found = {f"{_PREFIX}sequence": record.sequence, f"{_PREFIX}type": record.type}
    for name, value in record.fields.items():
        texts = isinstance(value, list) and all(isinstance(each, str) for each in value)
        if isinstance(value, str | bool | int) or texts:
            found[f"{_PREFIX}{name}"] = value
    return found


def over_http(endpoint: str | None) -> OpenTelemetry:
    """Return an output that sends OTLP over HTTP to *endpoint*, or where the environment says."""
    return OpenTelemetry(OTLPLogExporter(endpoint=endpoint))
