"""The page ``/safeser`` of the scheduler's dashboard, in Dask's own style.

The one rule: it shows text and numbers. Cells are drawn by formatters that escape; no text of a
peer reaches an axis, a title or a template, where bokeh would take ``$$...$$`` for mathematics.

Dask serves pages as applications of bokeh that its web server tries one after another. This is one
more of them, with the templates and the navigation of the scheduler's own.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from time import time
from typing import Any

from bokeh.layouts import column, row
from bokeh.models import ColumnDataSource, DataTable, NumberFormatter, StringFormatter, TableColumn
from bokeh.plotting import figure
from distributed.dashboard.components import DashboardComponent, add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from distributed.dashboard.utils import update
from distributed.utils import log_errors
from tornado.ioloop import IOLoop

from safeser.audit.outputs.activity import Activity
from safeser.audit.record import printable
from safeser.channel import Link
from safeser.dask.monitoring import activity_of
from safeser.dask.servers import served

__all__ = ["PAGE", "add", "document"]

PAGE = "safeser"

#: Milliseconds between two looks at the counts.
_EVERY = 1_000

#: Rows of each table.
_ROWS = 100

#: Colours of Dask's dashboard for work and for failures.
_PERMITTED, _REFUSED = "#4daf4a", "#e41a1c"

_WIDE = {"sizing_mode": "stretch_width"}


class Rates(DashboardComponent):  # type: ignore[misc]  # distributed ships no types
    """Decisions per second, permitted and refused."""

    def __init__(self, activity: Activity) -> None:
        self._activity = activity
        self.source = ColumnDataSource({"time": [], "permitted": [], "refused": []})
        self.root = figure(
            title="Decisions per second",
            x_axis_type="datetime",
            height=220,
            tools="",
            toolbar_location=None,
            **_WIDE,
        )
        for name, colour in (("permitted", _PERMITTED), ("refused", _REFUSED)):
            self.root.line(
                *("time", name), source=self.source, color=colour, line_width=2, legend_label=name
            )
        self.root.y_range.start = 0
        self.root.legend.location = "top_left"
        self.root.xgrid.visible = False

    def update(self) -> None:
        """Read the last minutes."""
        rates = self._activity.rates(int(time()))
        new = {
            "time": [at * 1_000 for at, _, _ in rates],
            "permitted": [permitted for _, permitted, _ in rates],
            "refused": [refused for _, _, refused in rates],
        }
        update(self.source, new)


class _Rows(DashboardComponent):  # type: ignore[misc]  # distributed ships no types
    """A table of text, which its formatters escape, and of numbers.

    :cvar columns: the name, title and width of each.
    :cvar numbers: the columns that hold numbers.
    """

    columns: tuple[tuple[str, str, int], ...]
    numbers: tuple[str, ...] = ()
    height = 260

    def __init__(self, of: Any) -> None:
        self._of = of
        self.source = ColumnDataSource({name: [] for name, _, _ in self.columns})
        self.root = DataTable(
            source=self.source,
            columns=[self._shown(*each) for each in self.columns],
            index_position=None,
            reorderable=False,
            height=self.height,
            **_WIDE,
        )

    def _shown(self, name: str, title: str, width: int) -> TableColumn:
        drawn = NumberFormatter(format="0,0") if name in self.numbers else StringFormatter()
        return TableColumn(field=name, title=title, width=width, formatter=drawn)

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows to show."""
        raise NotImplementedError

    def update(self) -> None:
        """Read the rows."""
        rows = self.rows()[:_ROWS]
        names = [name for name, _, _ in self.columns]
        update(self.source, {name: [row[at] for row in rows] for at, name in enumerate(names)})


class RefusedRules(_Rows):
    """Refusals by rule since the process started, the most frequent first."""

    columns = (("rule", "Rule that refused", 260), ("count", "Refusals", 90))
    numbers = ("count",)

    def rows(self) -> list[tuple[Any, ...]]:
        counts: Counter[str] = Counter()
        for (permitted, rule, _, _), number in self._of.decisions.copy().items():
            if not permitted:
                counts[rule] += number
        return sorted(counts.items(), key=lambda each: (-each[1], each[0]))


class Peers(_Rows):
    """Sessions by peer, with key and policy.

    A peer is a principal with a key that a handshake proved; which policy it decides by, it only
    states: that is cut and printable.
    """

    columns = (
        ("principal", "Peer", 140),
        ("key", "Key", 200),
        ("policy", "Policy that it states", 220),
        ("same", "Same as here", 100),
        ("sessions", "Sessions", 80),
    )
    numbers = ("sessions",)

    def rows(self) -> list[tuple[Any, ...]]:
        counted = Counter(map(self._peer, self._of.live_links()))
        return [(*peer, number) for peer, number in sorted(counted.items())]

    def _peer(self, link: Link) -> tuple[str, str, str, str]:
        session, claims = link.session, link.session.peer_claims
        policy = printable(f"{claims.policy} revision {claims.revision}", 80)
        agrees = claims.sha256 == self._of.policy.sha256
        return link.peer, session.peer_key.fingerprint, policy, "yes" if agrees else "NO"


class LastRefusals(_Rows):
    """The last refusals, the newest first."""

    columns = (
        ("time", "Time (UTC)", 90),
        ("rule", "Rule", 170),
        ("sender", "From", 110),
        ("recipient", "To", 110),
        ("operation", "Operation", 140),
        ("family", "Family", 90),
        ("where", "Where", 140),
        ("reason", "Reason", 420),
    )
    height = 400

    def rows(self) -> list[tuple[Any, ...]]:
        shown = self._of.refusals[:_ROWS]
        clocks = (datetime.fromtimestamp(each.time // 1_000_000, UTC) for each in shown)
        return [(f"{at:%H:%M:%S}", *each[1:]) for at, each in zip(clocks, shown, strict=True)]


@log_errors  # type: ignore[untyped-decorator]  # distributed ships no types
def document(scheduler: Any, extra: dict[str, Any], doc: Any) -> None:
    """Fill *doc* for one visitor; the callbacks end with the page."""
    known = served(scheduler)
    assert known is not None
    activity = activity_of(known.channel)
    assert activity is not None
    rates, rules = Rates(activity), RefusedRules(activity)
    sessions, last = Peers(known.channel), LastRefusals(activity)
    for component in (rates, rules, sessions, last):
        component.update()
        add_periodic_callback(doc, component, _EVERY)
    doc.title = "Dask: safeser"
    doc.add_root(column(rates.root, row(rules.root, sessions.root, **_WIDE), last.root, **_WIDE))
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.theme = BOKEH_THEME


def add(scheduler: Any) -> None:
    """Add the page to the dashboard of *scheduler*, and its name to the navigation of all pages."""
    known = served(scheduler)
    if known is None or activity_of(known.channel) is None:
        return
    dashboards = [
        each for each in scheduler.http_application.applications if hasattr(each, "app_paths")
    ]
    if not dashboards or any(f"/{PAGE}" in each.app_paths for each in dashboards):
        return
    shared = template_variables(scheduler)
    if PAGE not in shared["pages"]:
        shared["pages"].append(PAGE)
    page = BokehApplication(
        {f"/{PAGE}": document}, scheduler, prefix=dashboards[0].prefix, template_variables=shared
    )
    scheduler.http_application.add_application(page)
    page.initialize(IOLoop.current())
    page.start()
