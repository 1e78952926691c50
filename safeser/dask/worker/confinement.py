"""Prove, record and report the confinement of a worker whose policy demands it.

The one rule: confinement is proven before a socket is opened. If the policy demands confinement of
a principal, a scheduler registers its workers only with a report of the same demand. The report is
not proven to the scheduler: a worker that lies gets what its key may have anyway, and no more.

A confined worker has no nanny. Its nanny would run outside of the sandbox, and unpickles what the
worker's process puts into a queue (distributed 2026.8.0, ``nanny.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from safeser import confinement
from safeser.channel import Channel
from safeser.confinement import Outcome, Unconfined
from safeser.dask.roles import require_no_nanny
from safeser.dask.settings import Settings
from safeser.errors import ConfigError, PolicyDenied
from safeser.operations import Server
from safeser.policy import Confined, Policy, locate

__all__ = ["REPORT", "demand_for", "own_files", "prove", "require_report"]

#: The field of ``extra`` in which a worker reports its confinement when it registers.
REPORT = "safeser-confined"


def own_files(settings: Settings, policy: Policy) -> confinement.Own:
    """Return where a process with *settings* has its files."""
    settings.require_complete(Server.WORKER.value)
    assert settings.audit is not None
    policies = (settings.policy or "default", settings.shadow)
    public = [locate(each).expanduser().absolute() for each in policies if each is not None]
    if settings.roster_path is not None:
        public.append(settings.roster_path.absolute())
    return confinement.Own(
        identity=settings.identity_path.absolute(),
        audit_key=settings.audit_key_path.absolute(),
        audit=Path(settings.audit).expanduser().absolute(),
        public=tuple(public),
        principals=tuple(policy.principals),
    )


def demand_for(policy: Policy, principal: str) -> Confined | None:
    """Return what *policy* demands of processes of *principal*."""
    listed = policy.principals.get(principal)
    return None if listed is None else listed.confined


def prove(channel: Channel, settings: Settings, nanny: str | None) -> dict[str, Any] | None:
    """Probe this process, which is about to be a worker, and return its report; None if it is free.

    The report is of the demand of this moment: of one that changes later, nothing is proven.

    :param nanny: the address of the nanny that started this process; None if none did.
    :raises Unconfined: if its policy demands more confinement than there is.
    :raises ConfigError: if it demands confinement, and a nanny started this process.
    """
    demand = demand_for(channel.policy, channel.identity.principal)
    if demand is None:
        return None
    if nanny is not None:
        require_no_nanny(channel.policy, channel.identity.principal)
    outcomes = confinement.probe(demand, own_files(settings, channel.policy))
    error = Unconfined.of(outcomes)
    channel.audit.record(_event(channel, outcomes, error))
    if error is not None:
        raise error
    return {"demand": demand.digest, "probes": list(confinement.PROBES)}


def _event(
    channel: Channel, outcomes: Sequence[Outcome], error: ConfigError | None
) -> dict[str, Any]:
    own = channel.identity.principal
    return {
        "event": "confined",
        "sender": own,
        "recipient": own,
        "rule": "confined.proven" if error is None else error.rule,
        "permitted": error is None,
        "probes": [f"{each.probe} {each.state}: {each.found}" for each in outcomes],
    }


def require_report(policy: Policy, principal: str, extra: Any) -> None:
    """Raise unless a worker of *principal* reports the confinement that *policy* demands.

    :param extra: the field of its registration.
    """
    demand = demand_for(policy, principal)
    if demand is None:
        return
    said = extra.get(REPORT) if isinstance(extra, dict) else None
    if not isinstance(said, dict) or not _is_of(said, demand):
        other = "another demand" if isinstance(said, dict) else "none"
        raise PolicyDenied(
            f"{principal} must prove the confinement that this policy demands; it reports {other}",
            rule="worker.confined",
            fix="Give both the same policy, and start the worker again.",
        )


def _is_of(said: Mapping[str, Any], demand: Confined) -> bool:
    probes = said.get("probes")
    return (
        said.get("demand") == demand.digest
        and isinstance(probes, list | tuple)
        and all(name in probes for name in confinement.PROBES)
    )
