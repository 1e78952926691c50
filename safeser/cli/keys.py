"""``safeser keys``: make identities, change rosters, and look at public keys.

The one rule: no command prints, copies or replaces a private key; they are made where they stay. A
roster is replaced whole, or stays as it was.
"""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path
from typing import Annotated

import typer

from safeser.audit import AuditKey
from safeser.cli.screen import line, say, table
from safeser.errors import ConfigError
from safeser.keys import Identity, KeyState, PublicKey, Roster, RosterEntry, RosterFile, today
from safeser.keys.roster import parse_date
from safeser.policy.faults import did_you_mean, shown
from safeser.values import check_principal

__all__ = ["app"]

app = typer.Typer(
    help="Make identities, change rosters, and look at public keys.", no_args_is_help=True
)

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
    """Make one private key and show the line that lists it in a roster.

    A folder without a log key gets one as well: a process finds it beside its own key.
    """
    identity = Identity.generate(principal)
    identity.save(file)
    log_key = file.with_name("audit.key")
    if not log_key.exists():
        AuditKey.new().save(log_key)
        line(f"log key      {log_key} (made: there was none beside it)")
    _show(identity)


@app.command("list")
def list_(
    roster: Annotated[Path, typer.Argument(help="A roster, or a folder that holds one.")],
) -> None:
    """Show the public keys that a roster lists."""
    listed = Roster.load(_roster_in(roster))
    table(
        ("principal", "fingerprint", "state", "since", "comment"),
        [
            (e.principal, e.public.fingerprint, _state(e), e.created.isoformat(), e.comment)
            for e in listed.entries
        ],
    )
    line(f"SHA-256 {listed.sha256}")


def _roster_in(path: Path) -> Path:
    return path / _ROSTER if path.is_dir() else path


def _state(entry: RosterEntry) -> str:
    """Return the state of a key, and on which days it has sessions where its line says so."""
    first, last = entry.not_before, entry.not_after
    words = [entry.state.value, f"from {first}" if first else "", f"until {last}" if last else ""]
    return " ".join(filter(None, words))


# --- changing a roster ---------------------------------------------------------------------------

RosterPath = Annotated[
    Path, typer.Argument(metavar="ROSTER", help="A roster, or a folder that holds one.")
]
Whose = Annotated[str, typer.Option("--principal", metavar="NAME", help="Whose key it is.")]
KeyText = Annotated[
    str,
    typer.Argument(metavar="KEY", help="A public key (x25519:...), or your private key file."),
]
PolicyText = Annotated[
    str | None,
    typer.Option(metavar="POLICY", help="The policy in force; it says which principals there are."),
]
Day = Annotated[str | None, typer.Option(metavar="DATE", help="Like 2026-01-31, of UTC.")]


@app.command(short_help="List a key in a roster.")
def add(
    roster: RosterPath,
    key: KeyText,
    principal: Whose,
    *,
    policy: PolicyText = None,
    pending: Annotated[
        bool, typer.Option("--pending", help="List it, and let it in later: 'add' it again then.")
    ] = False,
    not_before: Day = None,
    not_after: Day = None,
    comment: Annotated[str, typer.Option(help="Who keeps it, say.")] = "",
) -> None:
    """List a key in a roster, or let in one that is listed as pending."""
    state = KeyState.PENDING if pending else KeyState.ACTIVE
    with RosterFile.edit(_roster_in(roster)) as file:
        _require_principal(file.roster, principal, policy)
        first, last = _day(not_before), _day(not_after)
        public = _public(key, principal)
        file.add(RosterEntry(public, principal, state, today(), comment, first, last))
    line(f"{principal} {public.fingerprint} is listed as {state.value}")


@app.command(short_help="List a new key beside a principal's old one.")
def rotate(
    roster: RosterPath,
    key: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="A file for the new private key, or a public key (x25519:...)."
        ),
    ],
    principal: Whose,
    *,
    until: Annotated[
        str | None,
        typer.Option(metavar="DATE", help="The last day of the keys that it has so far."),
    ] = None,
    comment: Annotated[str, typer.Option(help="Who keeps it, say.")] = "",
) -> None:
    """Make a new key for a principal, or take one, and list it beside those that it has."""
    last_day = _day(until)
    with RosterFile.edit(_roster_in(roster)) as file:
        before = file.roster.keys_of(principal)
        if not before:
            raise ConfigError(
                f"{principal!r} has no active key here that another one could follow",
                rule="roster.no-key",
                fix="List its first key with 'safeser keys add'.",
            )
        if last_day is not None and last_day < today():
            raise ConfigError(
                f"{last_day} is over: the old key would end before the new one is in use",
                rule="roster.dates",
                fix="Name today or later; 'safeser keys retire' ends a stolen key at once.",
            )
        made = _made(key, principal)
        public = made.public if made is not None else _public(key, principal)
        file.add(RosterEntry(public, principal, KeyState.ACTIVE, today(), comment))
        if last_day is not None:
            file.end(principal, last_day=last_day, keep=public)
        if made is not None:
            made.save(key)  # last but one: what fails before leaves no key, and it no line
    line(f"{principal} {public.fingerprint} is listed as active")
    say(
        f"Next: bring this roster to every process, put the new key in the place of"
        f" {principal}'s old key file, and then retire"
        f" {', '.join(each.fingerprint for each in before)}.",
        hang=0,
    )


@app.command(short_help="Retire keys, for good.")
def retire(
    roster: RosterPath,
    keys: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY...]", help="Public keys, fingerprints, or your key files."),
    ] = None,
    *,
    principal: Annotated[
        str | None, typer.Option(metavar="NAME", help="Retire all keys of this principal.")
    ] = None,
    policy: PolicyText = None,
) -> None:
    """Retire keys: their sessions end in every process that gets this roster."""
    if (principal is None) == (not keys):
        raise ConfigError(
            "name the keys to retire, or a principal with --principal", rule="roster.unknown-key"
        )
    with RosterFile.edit(_roster_in(roster)) as file:
        before = file.roster
        retired = (
            _those_of(before, principal)
            if principal is not None
            else [_listed(before, name) for name in keys or ()]
        )
        file.retire(*retired)
        _require_scheduler(before, file.roster, policy)
    for public in retired:
        line(f"{public.fingerprint} is retired")


def _those_of(roster: Roster, principal: str) -> list[PublicKey]:
    found = [
        e.public
        for e in roster.entries
        if e.principal == principal and e.state is not KeyState.RETIRED
    ]
    if not found:
        raise ConfigError(
            f"the roster lists no key of {shown(principal)} that is not retired",
            rule="roster.unknown-principal",
            fix=did_you_mean(principal, {e.principal for e in roster.entries}),
        )
    return found


def _listed(roster: Roster, name: str) -> PublicKey:
    """Return the key that *name* means: its text, its fingerprint, or the file of its owner."""
    for entry in roster.entries:
        if name in (entry.public.text, entry.public.fingerprint):
            return entry.public
    if name.startswith("x25519:"):
        return PublicKey.parse(name)
    if Path(name).exists():
        return Identity.load(name).public
    raise ConfigError(
        f"the roster lists no key {shown(name)}",
        rule="roster.unknown-key",
        fix="'safeser keys list' shows the keys of a roster and their fingerprints.",
    )


def _public(key: str, principal: str) -> PublicKey:
    if key.startswith("x25519:"):
        return PublicKey.parse(key)
    identity = Identity.load(key)
    if identity.principal != principal:
        raise ConfigError(
            f"{shown(key)} is a key of {identity.principal!r}, not of {principal!r}",
            rule="roster.principal",
            fix="Name the principal that the file was made for.",
        )
    return identity.public


def _made(key: str, principal: str) -> Identity | None:
    """Return a new identity if *key* names a file that is not there."""
    if key.startswith("x25519:") or Path(key).exists():
        return None
    return Identity.generate(principal)


def _day(text: str | None) -> datetime.date | None:
    return None if text is None else parse_date(text)


def _require_principal(roster: Roster, principal: str, policy: str | None) -> None:
    """Refuse a principal that neither *roster* nor *policy* knows: it may be misspelt."""
    known = {entry.principal for entry in roster.entries}
    if policy is not None:
        from safeser.policy import Policy

        known = set(Policy.load(policy).principals)
    if principal not in known:
        where = "the roster" if policy is None else f"policy {shown(policy)}"
        raise ConfigError(
            f"{where} knows no principal {shown(principal)}",
            rule="roster.unknown-principal",
            fix=" ".join(
                (
                    did_you_mean(principal, known),
                    "A new principal is added to the policy first; name that with --policy FILE.",
                )
            ).strip(),
        )


def _require_scheduler(before: Roster, after: Roster, policy: str | None) -> None:
    """Refuse to retire the last key of a scheduler: no process could connect to it any more."""
    for name in _schedulers(policy):
        if before.keys_of(name) and not after.keys_of(name):
            raise ConfigError(
                f"that is the last active key of {name!r}, without which the cluster ends",
                rule="roster.last-key",
                fix=f"List another one first: safeser keys rotate ROSTER NEW.key --principal"
                f" {name}",
            )


def _schedulers(policy: str | None) -> set[str]:
    """Return the principals with whom workers register and who register with none."""
    if policy is None:
        return {"scheduler"}
    from safeser.policy import Policy

    rules = [r for r in Policy.load(policy).contexts if "register-worker" in r.operations]
    senders = {name for rule in rules for name in rule.senders}
    return {name for rule in rules for name in rule.recipients} - senders


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
    entry = RosterEntry(identity.public, identity.principal, KeyState.ACTIVE, today())
    line(f"roster line  {entry.text()}")
