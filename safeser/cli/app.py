"""The tree of commands. Each noun is imported here and brings nothing heavy until it is used.

The one rule: ``safeser keys`` on a machine without Dask works and starts fast, so no module that
this one imports may import NumPy, Dask or pandas.
"""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from safeser import __version__
from safeser.cli import audit, confined, doctor, inspect, keys, preflight, rehearse, up
from safeser.cli.screen import line

__all__ = ["app"]

app = typer.Typer(
    name="safeser",
    help="Policy, authenticated envelopes and an audit log in front of pickle.",
    epilog="Exit codes: 0 fine, 1 denied or a check failed, 2 could not run.",
    add_completion=True,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # they show local variables, and those may be secret
    rich_markup_mode=None,
)


def _version(asked: bool) -> None:
    if asked:
        try:
            dask = f"distributed {version('distributed')}"
        except PackageNotFoundError:
            dask = "without Dask"
        line(f"safeser {__version__} (Python {platform.python_version()}, {dask})")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


app.add_typer(keys.app, name="keys")
app.add_typer(rehearse.app, name="policy")  # with the commands of safeser.cli.policy
app.add_typer(audit.app, name="audit")
# Typer cuts the first line of a docstring at some fifty characters here.
app.command("inspect", short_help="Show what a pickle or model file holds; load nothing.")(
    inspect.inspect
)
app.command("preflight", short_help="Check whether an object can be sent.")(preflight.preflight)
app.command("up", short_help="Run a local cluster until Ctrl-C.")(up.up)
app.command("doctor", short_help="Check settings, and say how to correct them.")(doctor.doctor)
app.command("confined", short_help="Confine this process, then become a worker.")(confined.confined)
