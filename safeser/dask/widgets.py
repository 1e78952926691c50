"""Escaping what distributed draws in notebooks.

The one rule: what its templates insert is text, unless it was made by one of its templates. They
hold what peers say: addresses, names of workers, keys, types of results, logs; and Dask's
environment escapes nothing by itself, so that one worker's name would run scripts in the notebook
of whoever looks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import distributed
from dask.widgets import FILTERS, widgets
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
