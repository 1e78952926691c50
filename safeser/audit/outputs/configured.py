"""Make the sinks that an operator names in configuration.

The one rule: a name that means nothing stops the process before it decides anything.

======================  ===========================================================================
``stdout``              lines of JSON on standard output
``syslog``              the socket ``/dev/log``; ``syslog:///path`` another, ``syslog://host:514``
                        a daemon that takes UDP
``otlp``                OpenTelemetry by OTLP over HTTP, to where ``OTEL_EXPORTER_OTLP_ENDPOINT``
                        says; ``otlp:http://host:4318/v1/logs`` to that place
======================  ===========================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from safeser.audit.outputs.feed import Outputs, Sink
from safeser.audit.outputs.lines import StandardOutput, Syslog
from safeser.audit.record import printable
from safeser.errors import ConfigError, MissingExtraError

__all__ = ["SYSLOG_PORT", "outputs", "sink"]

SYSLOG_PORT = 514


def outputs(named: Sequence[str]) -> Outputs:
    """Return the outputs that *named* are.

    :raises ConfigError: if one means nothing, or stands twice.
    """
    if len(set(named)) != len(named):
        raise ConfigError(
            "an audit output stands twice", rule="config.audit-outputs", fix="Name each once."
        )
    return Outputs([sink(name) for name in named])


def sink(name: str) -> Sink:
    """Return the sink that *name* is.

    :raises ConfigError: if it means nothing.
    :raises MissingExtraError: if it needs packages that are not installed.
    """
    kind, _, rest = name.partition(":")
    if name == "stdout":
        return StandardOutput()
    if name == "syslog":
        return Syslog()
    if kind == "syslog":
        return Syslog(_syslog_address(name))
    if kind == "otlp":
        return _opentelemetry(name, rest or None)
    raise _unknown(name, "there is no such output")


def _syslog_address(name: str) -> str | tuple[str, int]:
    try:
        place = urlsplit(name)
    except ValueError:
        raise _unknown(name, "it is no address") from None
    if place.netloc:
        try:
            host, port = place.hostname, place.port
        except ValueError:
            raise _unknown(name, "its port is no port") from None
        if not host or place.path.strip("/"):
            raise _unknown(name, "it is neither a host and port nor a path")
        return host, port or SYSLOG_PORT
    if not place.path.startswith("/"):
        raise _unknown(name, "its path is not absolute")
    return place.path


def _opentelemetry(name: str, endpoint: str | None) -> Sink:
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise _unknown(name, "its address begins with neither http:// nor https://")
    try:
        from safeser.audit.outputs.opentelemetry import over_http  # noqa: PLC0415 - an extra
    except ImportError:
        raise MissingExtraError(
            "the audit output otlp needs packages of OpenTelemetry",
            fix="Run: pip install 'safeser[otel]'",
        ) from None
    return over_http(endpoint)


def _unknown(name: str, why: str) -> ConfigError:
    return ConfigError(
        f"the audit output '{printable(name)}' is not taken: {why}",
        rule="config.audit-outputs",
        fix="Name stdout, syslog, syslog:///dev/log, syslog://HOST:514, otlp or"
        " otlp:http://HOST:4318/v1/logs.",
    )
