"""Escape what distributed displays of peers in notebooks and terminals.

The one rule: values in its templates are text, unless a template of distributed made them. They
come from peers: addresses, names of workers, keys, types of results, logs. Dask's environment
escapes nothing by itself, so that the name of one worker would run scripts in the notebook of a
user who displays it. So would a task's error, which progress bars show (distributed 2026.8.0,
``diagnostics/progressbar.py``), and the counts of a bar, which are numbers. Printed text holds no
control characters: peers choose the keys of futures and actors that come from queues and datasets.
"""

from __future__ import annotations

from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import dask
import distributed
from dask.widgets import get_template
from distributed.core import clean_exception
from distributed.diagnostics.progressbar import MultiProgressWidget
from jinja2 import Environment, Template, Undefined
from markupsafe import Markup, escape

from safeser.dask.patches.patch import Patch
from safeser.dask.wire.bounded_repr import has_bounded_repr, type_name
from safeser.errors import PayloadError
from safeser.families.errors.failures import shown
from safeser.operations.shapes import shape

__all__ = ["ROWS"]

#: Dask's own templates draw published collections, whose publisher chose names and types.
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


class Escaping(Environment):
    """The environment of Dask's templates, which escapes what they insert."""

    template_class = _Drawn

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        own = {"autoescape": _ESCAPED.__contains__, "finalize": _short}
        super().__init__(*args, **{**kwargs, **own})


def _short(value: Any) -> Any:
    """Return what is inserted for *value*: its type's name where its text may be far longer."""
    return value if has_bounded_repr(value) or isinstance(value, Undefined) else type_name(value)


def _printable(stock: Callable[[], str], _: Any) -> str:
    """Return a ``__repr__``, *stock*, without control characters."""
    return shown(stock())


def _labelled(stock: Callable[..., str], *args: Any, **kwargs: Any) -> str:
    """Return a label, *stock*, for drawings by graphviz, which takes ``<...>`` for HTML of its own:
    links that run scripts, and pictures out of local files. What published graphs are called is
    text.
    """
    said = stock(*args, **kwargs)
    return repr(said) if said.lstrip().startswith("<") else said


class _EscapedText(Exception):
    """An error whose representation is already escaped."""

    def __repr__(self) -> str:
        return str(self.args[0])


def _draw_stop(
    stock: Callable[..., None], _: Any, *args: Any, exception: Any = None, **kwargs: Any
) -> None:
    """Draw the end of a bar as *stock* does, with the escaped text of an error."""
    if exception is not None:
        _, error, _ = clean_exception(exception)
        exception = _EscapedText(escape(repr(error)))
    stock(*args, exception=exception, **kwargs)


_is_count = shape("count")


def _draw_bar(
    stock: Callable[..., None], bar: Any, remaining: Any, all: Any, **kwargs: Any
) -> None:
    """Draw a bar as *stock* does, of counts that are numbers."""
    counted = _are_counted if isinstance(bar, MultiProgressWidget) else _is_counted
    if not counted(remaining, all):
        raise PayloadError("a scheduler counts tasks in no numbers", rule="raw.progress")
    stock(remaining=remaining, all=all, **kwargs)


def _is_counted(left: Any, total: Any) -> bool:
    # With fewer than none left Dask draws a bar of any length; a Counter is shown unchanged.
    return _is_count(left) and _is_count(total) and left <= total


def _are_counted(left: Any, total: Any) -> bool:
    return (
        isinstance(left, dict)
        and isinstance(total, dict)
        and left.keys() == total.keys()
        and all(_is_counted(left[group], total[group]) for group in total)
    )


# --- rows ----------------------------------------------------------------------------------------

_BARS = "distributed.diagnostics.progressbar"
_ENVIRONMENT = "dask.widgets.widgets:get_environment"


ROWS = (
    Patch(
        target="dask.widgets.widgets:Environment",
        reason="Templates insert texts of peers unescaped: a worker's name runs scripts.",
        value=Escaping,
        source=(_ENVIRONMENT, "dask.widgets.widgets:get_template"),
    ),
    Patch(
        target="dask.widgets.widgets:FILTERS[html_escape]",
        reason="Text that templates escape themselves would be escaped twice.",
        value=escape,
        source=(_ENVIRONMENT,),
    ),
    Patch(
        target="dask.array.core:ARRAY_TEMPLATE",
        reason="dask.array keeps a template that it made before the environment escaped.",
        replace=lambda stock: get_template("array.html.j2"),
        source=("dask.array.core:Array._repr_html_",),
        when_imported=True,
    ),
    *(
        Patch(
            target=f"dask.dot:{name}",
            reason="graphviz takes a task's name in angle brackets for HTML, with links and files.",
            by=_labelled,
        )
        for name in ("label", "box_label")
    ),
    *(
        Patch(
            target=f"distributed.{name}.__repr__",
            reason="The key of a future or actor that a peer named steers the terminal.",
            by=_printable,
        )
        for name in ("client:Future", "actor:Actor")
    ),
    *(
        Patch(
            target=f"{_BARS}:{name}._draw_stop",
            reason="A progress bar inserts the text of a task's error unescaped.",
            by=_draw_stop,
        )
        for name in ("ProgressWidget", "MultiProgressWidget")
    ),
    *(
        Patch(
            target=f"{_BARS}:{name}._draw_bar",
            reason="A progress bar inserts the text of the scheduler's counts unescaped.",
            by=_draw_bar,
        )
        for name in ("TextProgressBar", "ProgressWidget", "MultiProgressWidget")
    ),
)
