"""``safeser keys``: change rosters, and look at public keys; ``new_keys`` makes them.

The one rule: no command prints, copies or replaces a private key; they are made where they stay. A
roster is replaced whole, or stays as it was.
"""

from __future__ import annotations

import datetime
import shlex
from pathlib import Path
from typing import Annotated

import typer

from safeser.cli.new_keys import app, show, show_signing
from safeser.cli.screen import line, say, table
from safeser.errors import ConfigError
from safeser.gate.key_pairs import PublicKey
from safeser.identity import (
    Identity,
    KeyState,
    Roster,
    RosterEntry,
    VerifyingKey,
    today,
)
from safeser.identity.edit import RosterFile
from safeser.identity.roster import parse_date
from safeser.policy.source.faults import did_you_mean, shown

__all__ = ["app"]

#: How a public key begins; any other KEY is the path of a file.
_PUBLIC = ("x25519:", "ed25519:")
_ROSTER = "roster"

RosterPath = Annotated[
    Path, typer.Argument(metavar="ROSTER", help="A roster, or a folder that holds one.")
]


@app.command("list")
def list_(roster: RosterPath) -> None:
    """Show the public keys that a roster lists.

    Each has a signing key beside it unless its state says 'no signing key'.
    """
    listed = Roster.load(_roster_in(roster))
    table(
        ("principal", "fingerprint", "state", "since", "comment"),
        [
            (e.principal, e.public.fingerprint, _state(e), e.created.isoformat(), e.comment)
            for e in listed.entries
        ],
        names={"fingerprint", "state", "since"},  # what is folded cannot be copied
    )
    line(f"SHA-256 {listed.sha256}")


@app.command(short_help="Check that a roster loads, or write its last line.")
def check(
    roster: RosterPath,
    *,
    fix: Annotated[
        bool,
        typer.Option("--fix", help="Write its last line anew: you state that it lists every key."),
    ] = False,
) -> None:
    """Check that a roster loads and is whole; its last line is 'end' and the number of its keys.

    Without that line it may be cut off, and no process uses it. The other commands write it.
    """
    path = _roster_in(roster)
    if fix:
        with RosterFile.edit(path, close=True):
            pass
    listed = Roster.load(path)
    line(f"{path}: fine, {len(listed)} keys, SHA-256 {listed.sha256}")


def _roster_in(path: Path) -> Path:
    return path / _ROSTER if path.is_dir() else path


def _state(entry: RosterEntry) -> str:
    """Return the state of a key and, on lines below it, its days and whether it cannot sign."""
    first, last = entry.not_before, entry.not_after
    words = [entry.state.value, f"from {first}" if first else "", f"until {last}" if last else ""]
    words.append("" if entry.verifying else "no signing key")
    return "\n".join(filter(None, words))


# --- changing a roster ---------------------------------------------------------------------------

Whose = Annotated[str, typer.Option("--principal", metavar="NAME", help="Whose key it is.")]
KeyTexts = Annotated[
    list[str],
    typer.Argument(
        metavar="KEY",
        help="Public keys (x25519:... ed25519:...) as 'keys new' prints them, quoted or as two"
        " words; or your key file.",
    ),
]
PolicyText = Annotated[
    str | None,
    typer.Option(metavar="POLICY", help="The policy in force; it says which principals there are."),
]
Day = Annotated[str | None, typer.Option(metavar="DATE", help="Like 2026-01-31, of UTC.")]


@app.command(short_help="List a key in a roster.")
def add(
    roster: RosterPath,
    key: KeyTexts,
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
    """List a key in a roster, which is made where there is none, or let in a pending one.

    Nothing proves that the public text came unchanged: before you list it, compare both
    fingerprints with those that its owner reads out from 'safeser keys fingerprint'. The owner of
    a listed signing key can sign as that principal.
    """
    state = KeyState.PENDING if pending else KeyState.ACTIVE
    with RosterFile.edit(_roster_in(roster), make=True) as file:
        if file.roster.entries or policy is not None:
            _require_principal(file.roster, principal, policy)
        first, last = _day(not_before), _day(not_after)
        public, verifying = _public(key, principal)
        entry = RosterEntry(public, principal, state, today(), comment, first, last, verifying)
        entry = file.add(entry)
    _show_listed(entry)


def _show_listed(entry: RosterEntry) -> None:
    line(f"{entry.principal} {entry.public.fingerprint} is listed as {entry.state.value}")
    show_signing(entry.verifying)


@app.command(short_help="List a new key beside a principal's old one.")
def rotate(
    roster: RosterPath,
    key: Annotated[
        list[str],
        typer.Argument(
            metavar="KEY",
            help="A file for the new keys, or public keys (x25519:... ed25519:...), quoted or as"
            " two words.",
        ),
    ],
    principal: Whose,
    *,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="DATE",
            help="The last day of the keys that it has so far, for sessions and signatures.",
        ),
    ] = None,
    comment: Annotated[str, typer.Option(help="Who keeps it, say.")] = "",
) -> None:
    """Make a new key for a principal, or take one, and list it beside those that it has.

    The old keys stay active until the new one is in use; then 'safeser keys retire' ends them. With
    its --verify-only they open no sessions any more, while queued work that they signed goes on.
    """
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
        public, verifying = (
            (made.public, made.verifying) if made is not None else _public(key, principal)
        )
        entry = RosterEntry(
            public, principal, KeyState.ACTIVE, today(), comment, verifying=verifying
        )
        entry = file.add(entry)
        if last_day is not None:
            file.end(principal, last_day=last_day, keep=public)
        if made is not None:
            made.save(key[0])  # last but one: what fails before leaves no key, and it no line
    _show_listed(entry)
    say(
        f"Next: bring this roster to every process, put the new key in place of"
        f" {principal}'s old key file, and then retire"
        f" {', '.join(each.fingerprint for each in before)}; with --verify-only if work that it"
        " signed is to go on.",
        hang=0,
    )


@app.command(short_help="Retire keys, for good; or let them only verify signatures.")
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
    verify_only: Annotated[
        bool,
        typer.Option(
            "--verify-only",
            help="End the sessions of active keys, and keep their signatures valid. Not for a"
            " stolen key: a thief can still sign with it.",
        ),
    ] = False,
    policy: PolicyText = None,
) -> None:
    """Retire keys: their sessions end in every process that gets this roster.

    What they signed is refused from then on, queued work included. With --verify-only it goes on
    until the key is retired or its last day (not_after) is over.
    """
    if (principal is None) == (not keys):
        raise ConfigError(
            "name the keys to retire, or a principal with --principal", rule="roster.unknown-key"
        )
    with RosterFile.edit(_roster_in(roster)) as file:
        before = file.roster
        chosen = (
            _keys_of(before, principal, verify_only=verify_only)
            if principal is not None
            else list(dict.fromkeys(_listed(before, name) for name in keys or ()))
        )
        if verify_only:
            file.verify_only(*chosen)
        else:
            file.retire(*chosen)
        _require_scheduler(before, file.roster, policy)
    for public in chosen:
        line(f"{public.fingerprint} is {'verify-only' if verify_only else 'retired'}")


def _keys_of(roster: Roster, principal: str, *, verify_only: bool) -> list[PublicKey]:
    found = [
        e.public
        for e in roster.entries
        if e.principal == principal
        and (e.state is KeyState.ACTIVE if verify_only else e.state is not KeyState.RETIRED)
    ]
    if not found:
        what = "active" if verify_only else "not retired"
        raise ConfigError(
            f"the roster lists no key of {shown(principal)} that is {what}",
            rule="roster.unknown-principal",
            fix=did_you_mean(principal, {e.principal for e in roster.entries}),
        )
    return found


def _listed(roster: Roster, name: str) -> PublicKey:
    """Return the key whose line *name* means: a text or fingerprint in it, or its owner's file."""
    for entry in roster.entries:
        if any(name in (key.text, key.fingerprint) for key in entry.keys):
            return entry.public
    if name.startswith(_PUBLIC[0]):
        return _parsed(name.split())[0]
    if Path(name).exists():
        return Identity.load(name).public
    raise ConfigError(
        f"the roster lists no key {shown(name)}",
        rule="roster.unknown-key",
        fix="'safeser keys list' shows the keys of a roster and their fingerprints.",
    )


def _public(key: list[str], principal: str) -> tuple[PublicKey, VerifyingKey | None]:
    """Return the public keys that *key* spells, or those of the file that it names."""
    if key[0].startswith(_PUBLIC):
        return _parsed(" ".join(key).split())
    if len(key) > 1:
        raise ConfigError(
            "a key is named by one file, or by its public text: x25519:..., then ed25519:...",
            rule="config.key",
            fix="Copy the line 'public keys' that 'safeser keys fingerprint' prints.",
        )
    identity = Identity.load(key[0])
    if identity.principal != principal:
        raise ConfigError(
            f"{shown(key[0])} is a key of {identity.principal!r}, not of {principal!r}",
            rule="roster.principal",
            fix="Name the principal that the file was made for.",
        )
    return identity.public, identity.verifying


def _parsed(words: list[str]) -> tuple[PublicKey, VerifyingKey | None]:
    """Return the public keys of one identity, which *words* spell."""
    if len(words) > 2:
        raise ConfigError(
            "the public text of an identity is x25519:..., then ed25519:..., and no more",
            rule="config.key",
        )
    verifying = VerifyingKey.parse(words[1]) if len(words) == 2 else None
    return PublicKey.parse(words[0]), verifying


def _made(key: list[str], principal: str) -> Identity | None:
    """Return a new identity if *key* names a file that is not there."""
    if len(key) > 1 or key[0].startswith(_PUBLIC) or Path(key[0]).exists():
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
    """Return the principals that workers register with and that register with none."""
    if policy is None:
        return {"scheduler"}
    from safeser.policy import Policy

    rules = [r for r in Policy.load(policy).contexts if "register-worker" in r.operations]
    senders = {name for rule in rules for name in rule.senders}
    return {name for rule in rules for name in rule.recipients} - senders


@app.command()
def fingerprint(file: Annotated[Path, typer.Argument(help="A private key file of yours.")]) -> None:
    """Show the public halves of a key file and their fingerprints."""
    try:
        identity = Identity.load(file)
    except ConfigError:
        _refuse_roster(file)
        raise
    show(identity)


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
