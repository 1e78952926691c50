"""The representation of a client in terminals and notebooks: its principal, policy and cluster.

The one rule: what a scheduler reports of itself and its workers is text. It is shown printable,
short and escaped, and a part that cannot be shown is left out alone.
"""

from __future__ import annotations

import html
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from dask.utils import format_bytes
from distributed.utils import format_dashboard_link
from distributed.versions import error_message
from jinja2 import TemplateError

from safeser.dask.servers import link_of
from safeser.dask.stock.comm import GUARDED
from safeser.errors import SafeserError
from safeser.gate.values import Grant, Kind

__all__ = ["Display"]

_SHOWN_MAX = 200  # an address; more is no help to a reader
_PACKAGES_MAX = 200  # of which one process tells the versions
_HASH_SHOWN = 12  # as `safeser policy show` and the log begin it

#: What Dask's own drawing raises about a scheduler that says of itself what it should not.
_UNDRAWABLE = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    SafeserError,
    TemplateError,
    TypeError,
    ValueError,
)


class Display:
    """The drawing of :class:`safeser.Client`, which comes before Dask's."""

    def __repr__(self) -> str:
        # Called where errors are formatted: no I/O, and nothing here raises.
        info = _mapping(getattr(self, "_scheduler_identity", None))
        cluster = "no scheduler connected"
        if info:
            counts = [_number(info.get(name)) for name in ("n_workers", "total_threads")]
            memory = info.get("total_memory")
            size = format_bytes(memory) if _is_number(memory) else "?"
            cluster = (
                f"{_text(info.get('address'))!r} processes={counts[0]} threads={counts[1]},"
                f" memory={size}"
            )
        rows = ", ".join(f"{name} {value}" for name, value in self._rows())
        return f"<{type(self).__name__}: {cluster}{', ' if rows else ''}{rows}>"

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><td style="text-align: left;"><strong>{html.escape(name)}:</strong></td>'
            f'<td style="text-align: left;">{html.escape(value)}</td></tr>'
            for name, value in self._rows()
        )
        try:
            drawn = str(super()._repr_html_())  # type: ignore[misc]  # of Dask's client
        except _UNDRAWABLE as error:
            drawn = (
                "<p>The cluster cannot be shown: its report has another form than Dask expects"
                f" ({html.escape(type(error).__name__)}).</p>"
            )
        return f'{drawn}<div style="margin-left: 48px;"><table>{rows}</table></div>'

    @property
    def dashboard_link(self) -> str | None:
        """The dashboard's address: on the scheduler's own host, at a port that is a number.

        A scheduler says the port. ``8787@elsewhere`` there would make a link to another host.
        """
        cluster = getattr(self, "cluster", None)
        if cluster is not None and hasattr(cluster, "dashboard_link"):
            link: str | None = cluster.dashboard_link
            return link
        try:
            scheduler, info = self._get_scheduler_info(n_workers=0)  # type: ignore[attr-defined]
        except _UNDRAWABLE:
            return None
        port = _mapping(_mapping(info).get("services")).get("dashboard")
        if scheduler is None or type(port) is not int or not 0 < port < 1 << 16:
            return None
        location: str = scheduler.address.partition("://")[2]
        drawn: str = format_dashboard_link(location.rpartition(":")[0], port)
        return drawn

    async def _get_versions(
        self, check: bool = False, packages: Sequence[str] | None = None
    ) -> Any:
        """Ask all processes for their versions; differences are reported as text."""
        found = await super()._get_versions(packages=packages)  # type: ignore[misc]  # of Dask's
        if check:
            workers = {_text(name): _packages(said) for name, said in found["workers"].items()}
            said = error_message(_packages(found["scheduler"]), workers, _packages(found["client"]))
            if said["warning"]:
                warnings.warn(said["warning"], stacklevel=1)
        return found

    # --- what safeser adds -----------------------------------------------------------------------

    def _rows(self) -> list[tuple[str, str]]:
        try:
            return [*self._said()]
        except (SafeserError, OSError):
            return []  # its settings are gone or wrong, as after a temporary cluster was closed

    def _said(self) -> Iterator[tuple[str, str]]:
        side: Any = self.safeser  # type: ignore[attr-defined]
        policy = side.policy
        link = link_of(getattr(self, "scheduler_comm", None))
        principal = getattr(side, "principal", None) or side.identity.principal
        peer = "" if link is None else f", towards {link.peer}"
        yield "principal", f"{principal}{peer}"
        yield (
            "policy",
            f"{policy.name} revision {policy.revision} (SHA-256 {policy.sha256[:_HASH_SHOWN]})",
        )
        theirs = getattr(getattr(link, "session", None), "peer_claims", None)
        if theirs is not None and theirs.sha256 != policy.sha256:
            # The reason for refusals that this process's own copy does not explain.
            sha256 = _text(theirs.sha256)[:_HASH_SHOWN]
            yield (
                "peer's policy",
                f"{_text(theirs.policy)} revision {_number(theirs.revision)} (SHA-256 {sha256})",
            )
        if link is not None:
            yield "opens", _families(link, requested=getattr(self, "_deserializers", None))
            sent = "what you submit, by Dask's own protocol: nothing here decides it"
            if link.transport not in GUARDED:
                asked = getattr(self, "_serializers", None)
                sent = _families(link, sealing=True, requested=asked)
            yield "sends", sent
        yield "refused", _refusals(getattr(side.audit, "refusals", {}))


def _families(link: Any, *, sealing: bool = False, requested: Iterable[str] | None = None) -> str:
    """Return the families that may pass on *link*, cut to those that its user asked for."""
    context = link.outbound(Kind.DATA) if sealing else link.inbound(Kind.DATA)
    grant: Grant = link.policy.bound(context, sealing=sealing)
    asked = None if requested is None else {*requested, "msgpack", "error"}
    if asked is not None and "pickle" in asked:
        asked.add("cloudpickle")  # Dask has one word for both
    kept = [name for name in grant.families if asked is None or name in asked]
    return ", ".join(name for name in kept if name != "error") or "none"


def _refusals(counts: Any) -> str:
    named = sorted(_mapping(counts).items(), key=lambda pair: (-pair[1], pair[0]))
    if not named:
        return "nothing"
    listed = ", ".join(f"{rule} {count}" for rule, count in named[:4])
    return f"{sum(count for _, count in named)} ({listed}{', ...' if len(named) > 4 else ''})"


def _mapping(value: Any) -> dict[Any, Any]:
    return value if isinstance(value, dict) else {}


def _is_number(value: Any) -> bool:
    # Larger ones than any cluster has take long to print, or have no text at all.
    return type(value) in (int, float) and 0 <= value < 1 << 63


def _number(value: Any) -> str:
    return str(value) if _is_number(value) else "?"


def _packages(said: Any) -> dict[str, dict[str, str]]:
    """Return the packages that a process reports, cut: Dask draws a table of their width."""
    packages = _mapping(_mapping(said).get("packages"))
    kept = islice(packages.items(), _PACKAGES_MAX)
    return {"packages": {_text(k): "None" if v is None else _text(v) for k, v in kept}}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        return "?"
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in value[:_SHOWN_MAX])
