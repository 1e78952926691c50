"""``safeser keys``: make identities and look at public keys.

The one rule: no command prints, copies or replaces a private key; they are made where they stay.
"""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path
from typing import Annotated

import typer

from safeser.cli.screen import line, say, table
from safeser.errors import ConfigError
from safeser.keys import Identity, KeyState, Roster, RosterEntry
from safeser.values import check_principal

__all__ = ["app"]

app = typer.Typer(help="Make identities and look at public keys.", no_args_is_help=True)

#: The processes of a Dask cluster; each is a principal of its own.
_PROCESSES = ("scheduler", "worker", "nanny")
_ROSTER = "roster"
_AUDIT_KEY = "audit.key"


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="A folder that is empty or not there yet.")],
    principal: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A user to make an identity for; may be repeated. [default: client]",
        ),
    ] = None,
) -> None:
    """Make identities, a roster and a log key for a small cluster."""
    users = principal or ["client"]
    names = [check_principal(name) for name in (*_PROCESSES, *users)]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"{', '.join(repeated)} would get two identities",
            rule="config.keys",
            fix="Name each user once; scheduler, worker and nanny are always made.",
        )
    # The log's code is not needed by the other commands of this noun.
    from safeser.identities import make_identities

    roster = make_identities(directory, names)
    table(
        ("principal", "fingerprint", "private key"),
        [(e.principal, e.public.fingerprint, f"{e.principal}.key") for e in roster.entries],
    )
    _next_steps(directory.absolute(), users)


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def _next_steps(directory: Path, users: list[str]) -> None:
    def identity(of: str, setting: str = "IDENTITY") -> str:
        return f'DASK_SAFESER__{setting}="$KEYS"/{of}.key'

    policy = _fitting_policy(users) or "./policy.yaml  # yours: it must list these principals"
    line()
    say(
        f"They are in {directory}. The keys and {_AUDIT_KEY} are readable by you alone; the"
        f" {_ROSTER} holds public keys, and no secret.",
        hang=0,
    )
    say("Give each process its own key file; all of them get the roster and the log's key.", hang=0)
    line()
    line("# for every process")
    line(f"export KEYS={shlex.quote(str(directory))}")
    line('export DASK_SAFESER__AUDIT="$KEYS"/audit')
    line(f"export DASK_SAFESER__POLICY={policy}")
    line("# the cluster; on several machines, each with --host and its own address")
    line(f"{identity('scheduler')} dask scheduler --protocol safeser")
    line(f"{identity('worker')} \\")
    line(f"    {identity('nanny', 'NANNY__IDENTITY')} \\")
    line("    dask worker safeser://HOST:8786")
    others = f" ({', '.join(users[1:])}: the same, each with his own key)" if users[1:] else ""
    line(f"# {users[0]}{others}")
    line(f"{identity(users[0])} python")
    line(">>> import safeser")
    line('>>> safeser.Client("safeser://HOST:8786", deserializers=["dask", "msgpack"])')


def _fitting_policy(users: list[str]) -> str | None:
    """Return the ready policy that lists these users and the fewest others, if one lists them."""
    from safeser.policy import Policy, ready_policies

    listed = {
        name: set(Policy.load(name).principals) - set(_PROCESSES) for name in ready_policies()
    }
    fitting = [name for name in listed if listed[name] >= set(users)]
    return min(fitting, key=lambda name: len(listed[name]), default=None)


@app.command(short_help="Make one private key, and its line for a roster.")
def new(
    file: Annotated[Path, typer.Argument(help="Where the private key goes; must not exist.")],
    principal: Annotated[str, typer.Option(metavar="NAME", help="Whose key it is.")],
) -> None:
    """Make one private key and show the line that lists it in a roster."""
    identity = Identity.generate(principal)
    identity.save(file)
    _show(identity)


@app.command("list")
def list_(
    roster: Annotated[Path, typer.Argument(help="A roster, or a folder that holds one.")],
) -> None:
    """Show the public keys that a roster lists."""
    entries = Roster.load(roster / _ROSTER if roster.is_dir() else roster).entries
    table(
        ("principal", "fingerprint", "state", "since", "comment"),
        [
            (e.principal, e.public.fingerprint, e.state.value, e.created.isoformat(), e.comment)
            for e in entries
        ],
    )


@app.command()
def fingerprint(
    file: Annotated[Path, typer.Argument(help="A private key file of yours.")],
) -> None:
    """Show the public half of a private key."""
    try:
        identity = Identity.load(file)
    except ConfigError:
        _refuse_roster(file)
        raise
    _show(identity)


def _refuse_roster(file: Path) -> None:
    """Say so if *file* is a roster: it is public, and as a key its mode would be what is wrong."""
    try:
        Roster.load(file)
    except ConfigError:
        return
    raise ConfigError(
        f"{file} is a roster, which holds public keys only",
        rule="config.identity",
        fix=f"'safeser keys list {shlex.quote(str(file))}' shows their fingerprints.",
    )


def _show(identity: Identity) -> None:
    line(f"principal    {identity.principal}")
    line(f"fingerprint  {identity.public.fingerprint}")
    entry = RosterEntry(identity.public, identity.principal, KeyState.ACTIVE, _today())
    line(f"roster line  {entry.text()}")
