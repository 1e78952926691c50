"""Report which policy and roster a process decides by, for operators who roll out new ones.

The one rule: a process reports the name, revision and hash of its policy and the hash of its
roster, and nothing else of either, in its answer to ``identity``, to principals that the policy
grants that operation. The report is not proven and decides nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from safeser.channel import Link
from safeser.operations import Server

__all__ = ["Statement", "ask", "stated"]

#: The field of the answer.
_FIELD = "safeser"
_OWN = ("policy", "revision", "sha256", "roster")
_CLIENTS = "clients"


class Statement(NamedTuple):
    """What one process says that it decides by; *roster* is empty where it did not say, and all
    fields are where it says nothing.
    """

    process: str
    policy: str
    revision: int
    sha256: str
    roster: str

    def agrees(self, other: Statement) -> bool:
        """Tell whether both report the same; a process without a report agrees with none."""
        rosters = {self.roster, other.roster} - {""}
        return self.sha256 == other.sha256 != "" and len(rosters) < 2


def stated(answer: Any, link: Link) -> Any:
    """Return *answer* to ``identity`` with what this process decides by; a refusal as it is."""
    if not isinstance(answer, dict) or "type" not in answer:
        return answer
    standing = link.channel.standing
    policy, roster = standing.policy, standing.listed.sha256
    own = (policy.name, policy.revision, policy.sha256, roster)
    said: dict[str, Any] = dict(zip(_OWN, own, strict=True))
    if answer["type"] == "Scheduler":
        # By policy, as they claimed it in their last handshake.
        clients = (each for each in link.channel.live_links() if each.is_client)
        claims = (each.session.peer_claims for each in clients)
        counted = Counter((each.policy, each.revision, each.sha256) for each in claims)
        said[_CLIENTS] = [[*policy, count] for policy, count in sorted(counted.items())]
    return {**answer, _FIELD: said}


async def ask(scheduler: Any) -> list[Statement]:
    """Return what the processes of the cluster say, the scheduler first.

    :param scheduler: an RPC of distributed's to it.
    :raises PolicyDenied: if this process may not ask for ``identity`` or ``broadcast``.
    """
    answer = await scheduler.identity(n_workers=-1)
    found = [*_read("scheduler", answer)]
    for server in (Server.WORKER, Server.NANNY):
        message = {"op": "identity"}
        answers = await scheduler.broadcast(
            msg=message, nanny=server is Server.NANNY, on_error="return"
        )
        for address, each in sorted(answers.items()):
            found += _read(f"{server.value} {address}", each)
    return found


def _read(process: str, answer: Any) -> Iterator[Statement]:
    """Yield the statements of *answer*; values of another form are left out.

    A process that does not answer may decide by anything: it is not left out.
    """
    said = answer.get(_FIELD) if isinstance(answer, Mapping) else None
    said = said if isinstance(said, Mapping) else {}
    match [said.get(name) for name in _OWN]:
        case [str() as policy, int() as revision, str() as sha256, str() as roster]:
            yield Statement(process, policy, revision, sha256, roster)
        case _:
            yield Statement(process, "", 0, "", "")
            return
    clients = said.get(_CLIENTS)
    for each in clients if isinstance(clients, (list, tuple)) else ():
        match each:
            case [str() as policy, int() as revision, str() as sha256, int() as count]:
                who = f"{count} client{'s' * (count != 1)}"
                yield Statement(who, policy, revision, sha256, "")
