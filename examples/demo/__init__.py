"""The demo: a Dask cluster under policy, its normal work, attacks on it, and what each produced.

``make demo`` runs it. It reports only what it observed; a step with another result ends the demo
with the reason, and no process is left running. None of it is part of the package safeser: it makes
attacks and wraps unpicklers.
"""

from __future__ import annotations

__all__: list[str] = []
