"""Answer the requests that are safeser's own, which no handler of Dask's sees.

The one rule: what is asked for is decided and recorded as any request, and answered in plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from safeser.errors import PayloadError
from safeser.operations import Operation

__all__ = ["COUNTS", "answered"]

COUNTS = "serialization_counts"


def answered(row: Operation, asker: str, request: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the answer to *request* of *asker*, which was decided, or None if Dask answers it.

    :raises PayloadError: if a field is missing, at which a handler of Dask's would raise.
    """
    if row.name != COUNTS:
        return None
    missing = row.takes.keys() - request.keys()
    if missing:
        raise PayloadError(
            f"{row.name} lacks the field {min(missing)}", rule="operation.field-missing"
        )
    # Few processes are asked for it.
    from safeser.trace.counting import counting  # noqa: PLC0415 - as above

    counts = counting.ask(asker, request["trace"], request["seconds"])
    return {"status": "OK", "process": counting.process, "counts": counts}
