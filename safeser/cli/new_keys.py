"""``safeser keys init``, ``new`` and ``secret``: make the files that processes prove themselves by.

The one rule: no command prints, copies or replaces a private key; they are made where they stay.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from safeser.audit import AuditKey
from safeser.cli.screen import line, say, table
from safeser.errors import ConfigError
from safeser.gate.values import check_principal
from safeser.identity import Identity, RosterEntry, VerifyingKey, today
from safeser.identity.secret import ENVIRONMENT, Secret
from safeser.policy.source.faults import did_you_mean, shown

if TYPE_CHECKING:
    from safeser.policy import Policy

__all__ = ["app", "show", "show_signing"]

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
    principals: Annotated[
        str, typer.Option(metavar="NAME,...", help="The users to make identities for.")
    ] = "client",
) -> None:
    """Make identities, a roster and a log key for a small cluster."""
    users = principals.split(",")
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

    # Users that the other ready policies list are examples: it is not for them that they grant.
    policy = "default" if users == ["client"] else "./team.yaml  # yours: extends dask-cluster"
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


@app.command(short_help="Add a person: make a key, and lines for roster and policy.")
def new(
    principal: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is.")],
    *,
    file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Where the private key goes; must not exist. [default: NAME.key]"
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="GROUP", help="A group of the policy; may be repeated."),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help="Tell what that policy lets them do.",
            envvar="DASK_SAFESER__POLICY",
        ),
    ] = None,
) -> None:
    """Make a key file and show what an operator puts into roster and policy.

    It holds a key for sessions and one for signatures. A folder without a log key gets one as well:
    a process finds it beside its own key.
    """
    from safeser.policy.ready import is_ready

    identity = Identity.generate(principal)
    joined, listed = (None, False) if policy is None else _joined(policy, principal, group or [])
    path = file or Path(f"{principal}.key")
    identity.save(path)
    log_key = path.with_name(_AUDIT_KEY)
    if not log_key.exists():
        AuditKey.new().save(log_key)
        line(f"log key      {log_key} (made: there was none beside it)")
    line(f"private key  {path} (readable by you alone)")
    show(identity)
    spelled = f"{{groups: [{', '.join(group)}]}}" if group else "{}"
    if joined is None or policy is None:
        line(f"policy line  {principal}: {spelled}")
        return
    _show_powers(joined, principal)
    line()
    if not listed and is_ready(policy):
        say(f"{policy} is a ready policy; extend it, as in ./team.yaml:", hang=0)
        words = ("safeser: 1", "name: team", "revision: 1", f"extends: {policy}")
        for each in (*words, f"principals: {{{principal}: {spelled}}}", "..."):
            line(f"  {each}")
        policy = "./team.yaml"
    elif not listed:
        say(
            f"Put this under 'principals' of {policy} (after a comma, where they stand in braces),"
            " and raise its revision:",
            hang=0,
        )
        line(f"  {principal}: {spelled}")
    say("Then put the roster line into the roster, or list the key by command:", hang=0)
    beside = path.with_name("roster")
    roster = shlex.quote(str(beside)) if beside.exists() else "ROSTER"
    line(f"  safeser keys add {roster} {identity.public_text} \\")
    line(f"    --principal {principal} --policy {shlex.quote(policy)}")
    say(
        f"{principal} starts Python with these, roster and log key beside the private key:",
        hang=0,
    )
    line(f"  export DASK_SAFESER__IDENTITY={shlex.quote(str(path))}")
    line(f"  export DASK_SAFESER__POLICY={shlex.quote(policy)} DASK_SAFESER__AUDIT=audit")


def _joined(named: str, principal: str, groups: list[str]) -> tuple[Policy, bool]:
    """Return the policy *named*, with *principal* in *groups*, and whether it lists it already.

    :raises ConfigError: if the policy has no such group, which may be misspelt.
    """
    from safeser.policy import Policy
    from safeser.policy.ready import locate, read_policy
    from safeser.policy.source.extends import with_principal

    loaded = Policy.load(named)
    if principal in loaded.principals:
        return loaded, True
    known = {group for each in loaded.principals.values() for group in each.groups}
    for group in groups:
        if group not in known:
            raise ConfigError(
                f"policy {shown(named)} has no group {shown(group)}",
                rule="config.undefined",
                fix=did_you_mean(group, known),
            )
    text = read_policy(locate(named))
    return Policy.parse(with_principal(text, principal, groups), source=text.source), False


def _show_powers(policy: Policy, principal: str) -> None:
    """Say what *principal* may send, and what may be sent to it."""
    from safeser.policy.source.words import joined

    for says, ours, theirs in (
        ("may send to", "senders", "recipients"),
        ("may be sent by", "recipients", "senders"),
    ):
        rows = [
            (
                joined(getattr(rule, theirs)),
                "\n".join(f"{label}: {text}" for label, text, _ in rule.rows()),
            )
            for rule in policy.contexts
            if principal in getattr(rule, ours)
        ]
        line()
        table((f"{principal} {says}", "what"), rows or [("none", "")])


@app.command(short_help="Make a secret that the boxes of a small team share.")
def secret(
    file: Annotated[Path, typer.Argument(help="Where it goes; must not exist.")],
) -> None:
    """Make a secret for boxes without a roster, in a file of its own.

    All processes that have it are one principal. Bring the file to each over a channel that keeps
    it secret; to replace it, give processes both files for a while, the new one first.
    """
    made = Secret.generate()
    made.save(file)
    line(f"secret       {file} (readable by you alone)")
    line(f"fingerprint  {made.fingerprint}")
    line(f"export {ENVIRONMENT}={shlex.quote(str(file.absolute()))}")
    line(">>> safeser.Box.shared(audit=...)")


def show(identity: Identity) -> None:
    line(f"principal    {identity.principal}")
    line(f"fingerprint  {identity.public.fingerprint}")
    show_signing(identity.verifying)
    line(f"public keys  {identity.public_text}")
    line(f"roster line  {RosterEntry.of(identity, created=today()).text()}")


def show_signing(verifying: VerifyingKey | None) -> None:
    line(f"signing key  {verifying.fingerprint if verifying else 'none'}")
