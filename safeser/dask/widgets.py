"""Escaping what distributed draws in notebooks.

The one rule: what its templates insert is text, unless it was made by one of its templates. They
hold what peers say: addresses, names of workers, keys, types of results, logs; and Dask's
environment escapes nothing by itself, so that one worker's name would run scripts in the notebook
of whoever looks. So would a task's error, which progress bars show (distributed 2026.8.0,
``diagnostics/progressbar.py``). What a bar counts are numbers: it is drawn as long as a scheduler
says that it is. What is printed steers no terminal: the keys of futures and actors that come out of
queues and datasets are others' words.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from html import unescape
from pathlib import Path
from typing import Any

import dask
import dask.dot
import distributed
from dask.widgets import FILTERS, get_template, widgets
from distributed import Actor, Future
from distributed.core import clean_exception
from distributed.diagnostics.progressbar import (
    MultiProgressWidget,
    ProgressWidget,
    TextProgressBar,
)
from jinja2 import Environment, Template, Undefined
from markupsafe import Markup, escape

from safeser.dask.bounded_repr import has_bounded_repr, type_name
from safeser.errors import PayloadError
from safeser.families.errors.failures import shown
from safeser.operations.shapes import shape

__all__ = ["escape_templates"]

#: Dask's own draw published collections, whose names and types are their publisher's words.
_ESCAPED = frozenset(
    path.name
    for package in (dask, distributed)
    for path in Path(package.__file__).parent.glob("widgets/templates/*.j2")
)
_LAYER = "highlevelgraph_layer.html.j2"
#: By template, what Dask drew without one: of numbers, or by pandas, which escapes.
_DRAWINGS = {"array.html.j2": "grid", "dataframe.html.j2": "data", _LAYER: "svg_repr"}


class _Drawn(Template):
    """A template whose result other templates insert as it is."""

    def render(self, *args: Any, **kwargs: Any) -> str:
        if self.name not in _ESCAPED:
            return super().render(*args, **kwargs)
        drawing = _DRAWINGS.get(self.name)
        if drawing is not None:
            kwargs[drawing] = Markup(kwargs.get(drawing, ""))  # noqa: S704 - as said there
        if self.name == _LAYER:
            # Dask has escaped what it says of a layer, but not how it calls it.
            kwargs["info"] = {key: unescape(str(said)) for key, said in kwargs["info"].items()}
        return Markup(super().render(*args, **kwargs))  # noqa: S704 - escaped above


class _Escaping(Environment):
    template_class = _Drawn

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        own = {"autoescape": _ESCAPED.__contains__, "finalize": _short}
        super().__init__(*args, **{**kwargs, **own})


def _short(value: Any) -> Any:
    """Return what is inserted for *value*: its type's name where its text may be far longer."""
    return value if has_bounded_repr(value) or isinstance(value, Undefined) else type_name(value)


def escape_templates() -> None:
    """Have this process escape what distributed draws, whichever of its objects is drawn."""
    widgets.Environment = _Escaping
    FILTERS["html_escape"] = escape  # or text that templates escape themselves is escaped twice
    arrays: Any = sys.modules.get("dask.array.core")
    if arrays is not None:  # it keeps its template
        arrays.ARRAY_TEMPLATE = get_template("array.html.j2")
    for name in ("label", "box_label"):
        stock = getattr(dask.dot, name)
        if not hasattr(stock, "__wrapped__"):
            setattr(dask.dot, name, _labelling(stock))
    for kind in (Future, Actor):
        if not hasattr(kind.__repr__, "__wrapped__"):
            kind.__repr__ = _printable(kind.__repr__)
    for bar in (ProgressWidget, MultiProgressWidget):
        if not hasattr(bar._draw_stop, "__wrapped__"):
            bar._draw_stop = _escaping_errors(bar._draw_stop)
    for bar in (TextProgressBar, ProgressWidget, MultiProgressWidget):
        if not hasattr(bar._draw_bar, "__wrapped__"):
            bar._draw_bar = _counting(bar._draw_bar)


def _printable(told: Callable[[Any], str]) -> Callable[[Any], str]:
    @wraps(told)
    def tell(value: Any) -> str:
        return shown(told(value))

    return tell


def _labelling(label: Callable[..., str]) -> Callable[..., str]:
    """Return *label* for drawings by graphviz, which takes ``<...>`` for HTML of its own: links
    that run scripts, and pictures out of local files. What published graphs are called is text.
    """

    @wraps(label)
    def labelled(*args: Any, **kwargs: Any) -> str:
        said = label(*args, **kwargs)
        return repr(said) if said.lstrip().startswith("<") else said

    return labelled


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


_is_count = shape("count")


def _counting(draw: Callable[..., None]) -> Callable[..., None]:
    @wraps(draw)
    def draw_bar(bar: Any, remaining: Any, all: Any, **kwargs: Any) -> None:
        counted = _is_counted
        if isinstance(bar, MultiProgressWidget):
            counted = _are_counted
        if not counted(remaining, all):
            raise PayloadError("a scheduler counts tasks in no numbers", rule="raw.progress")
        draw(bar, remaining=remaining, all=all, **kwargs)

    return draw_bar


def _is_counted(left: Any, total: Any) -> bool:
    # Of fewer than none left Dask draws a bar of any length; what Counters make is told as it is.
    return _is_count(left) and _is_count(total) and left <= total


def _are_counted(left: Any, total: Any) -> bool:
    return (
        isinstance(left, dict)
        and isinstance(total, dict)
        and left.keys() == total.keys()
        and all(_is_counted(left[group], total[group]) for group in total)
    )
