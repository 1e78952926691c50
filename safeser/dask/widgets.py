"""Escaping what distributed draws in notebooks.

The one rule: what its templates insert is text, unless it was made by one of its templates. They
hold what peers say: addresses, names of workers, keys, types of results, logs; and Dask's
environment escapes nothing by itself, so that one worker's name would run scripts in the notebook
of whoever looks. So would a task's error, which progress bars show (distributed 2026.8.0,
``diagnostics/progressbar.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import distributed
from dask.widgets import FILTERS, widgets
from distributed.core import clean_exception
from distributed.diagnostics.progressbar import MultiProgressWidget, ProgressWidget
from jinja2 import Environment, Template
from markupsafe import Markup, escape

__all__ = ["escape_templates"]

#: Dask's own templates (arrays, graphs) insert drawings that no template made, of no peer's words.
_ESCAPED = frozenset(
    path.name for path in Path(distributed.__file__).parent.glob("widgets/templates/*.j2")
)


class _Drawn(Template):
    """A template whose result other templates insert as it is."""

    def render(self, *args: Any, **kwargs: Any) -> str:
        drawn = super().render(*args, **kwargs)
        return Markup(drawn) if self.name in _ESCAPED else drawn  # noqa: S704 - escaped above


class _Escaping(Environment):
    template_class = _Drawn

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "autoescape": _ESCAPED.__contains__})


def escape_templates() -> None:
    """Have this process escape what distributed draws, whichever of its objects is drawn."""
    widgets.Environment = _Escaping
    FILTERS["html_escape"] = escape  # or text that templates escape themselves is escaped twice
    for bar in (ProgressWidget, MultiProgressWidget):
        if not hasattr(bar._draw_stop, "__wrapped__"):
            bar._draw_stop = _escaping_errors(bar._draw_stop)


class _Told(Exception):
    """An error whose representation is already escaped."""

    def __repr__(self) -> str:
        return str(self.args[0])


def _escaping_errors(draw: Callable[..., None]) -> Callable[..., None]:
    @wraps(draw)
    def draw_stop(bar: Any, *args: Any, exception: Any = None, **kwargs: Any) -> None:
        if exception is not None:
            _, error, _ = clean_exception(exception)
            exception = _Told(escape(repr(error)))
        draw(bar, *args, exception=exception, **kwargs)

    return draw_stop
