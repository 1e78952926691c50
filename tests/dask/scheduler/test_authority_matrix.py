"""Who may have whom do what: each operation of ``cluster`` and ``control``, for each ordered pair.

The tables are written from the text of the policies and from decision 78, not from what the code
answers. All requests are about the first worker. An element comes on a stream alone: one that a
worker or client opened to its scheduler, or a worker's own to the scheduler.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from safeser.dask.client_ids import ClientIds
from safeser.dask.messages.stream_identity import StreamIdentity
from safeser.dask.scheduler.request_authority import require_authority
from safeser.dask.servers import Served
from safeser.errors import PolicyDenied
from safeser.gate.noise import HandshakeRefused
from safeser.gate.values import Kind
from safeser.operations import OPERATIONS, Channel, Server
from safeser.policy.ready import locate
from tests.dask.patched import serve
from tests.dask.registered import Cluster, Comm, address, on

#: The columns: a principal, and its key.
#:   S  the scheduler                      N  the nanny that the first worker registered with
#:   W  the first worker                   n  another nanny
#:   w  another worker                     O  who submits and operates, L who looks
SENDERS = {
    "S": ("scheduler", "the scheduler's"),
    "W": ("worker", "one"),
    "w": ("worker", "two"),
    "N": ("nanny", "its nanny's"),
    "n": ("nanny", "another nanny's"),
}

#: The people of each policy, by column. ``observe`` lets pass all that ``trusted`` does.
PEOPLE = {
    "default": {"O": "client"},
    "strict": {"O": "client"},
    "sealed": {"O": "client"},
    "demo": {"O": "alice", "L": "bob"},
    "dask-cluster": {"O": "carol", "L": "dashboard"},
    "shared": {"O": "carol", "L": "dashboard"},
    "trusted": {"O": "client"},
    "observe": {"O": "client"},
}

#: What stands in a row for each sender: carried out, refused by policy, or by this rule.
RULES = {
    "+": "",
    ".": "operation.not-granted",
    "a": "worker.ending",
    "i": "stream.identity",
}

#: What the ready policies for several principals say. A scheduler directs; a worker reports, hands
#: others shards and tells nannies that it retires; a nanny registers as one and ends workers; an
#: operator steers the cluster; all others do none of that.
READY = """
to scheduler                                                                       SWwNnOL
    register-worker                                                                .++....
    heartbeat_worker add_keys shuffle_get shuffle_get_or_create                    .++....
    shuffle_barrier shuffle_restrict_task                                          .++....
    register_nanny unregister                                                      ...++..
    subscribe_worker_status                                                        .......
    restart restart_workers terminate adaptive_target set_resources                .....+.
    set_restrictions amm_handler workers_to_close retire_workers                   .....+.
    keep-alive release-worker-data long-running reschedule steal-response          .+i....
    worker-status-change add-keys request-refresh-who-has                          .+i....
    task-finished task-erred log-event                                             .+i....
to worker                                                                          SWwNnOL
    free_keys shuffle_inputs_done gather terminate                                 +......
    shuffle_receive                                                                +++....
    free-keys remove-replicas steal-request cancel-compute worker-status-change    +......
    remove-worker shuffle-fail acquire-replicas refresh-who-has compute-task       +......
    close                                                                          +......
to nanny                                                                           SWwNnOL
    instantiate kill restart terminate                                             +......
    close_gracefully                                                               +++....
to people                                                                          SWwNnOL
    restart                                                                        +......
"""

#: One person's cluster has its owner told which workers come and go.
OWNED = """
to scheduler                                                                       SWwNnOL
    subscribe_worker_status                                                        .....+.
"""

#: Workers and nannies hold all of ``cluster``, as in policies that were copied before its parts
#: were there, and all people ``unregister``: what is left is what the server itself checks.
SHARED = """
to scheduler                                                                       SWwNnOL
    register-worker register_nanny subscribe_worker_status                         .++++..
    heartbeat_worker add_keys shuffle_get shuffle_get_or_create                    .++++..
    shuffle_barrier shuffle_restrict_task                                          .++++..
    unregister                                                                     .+++++a
    keep-alive release-worker-data long-running reschedule steal-response          .+iii..
    worker-status-change add-keys request-refresh-who-has                          .+iii..
    task-finished task-erred log-event                                             .+iii..
"""

#: Everyone holds everything, ``control`` too: what is said on a worker's stream stays its own.
TRUSTED = """
to scheduler                                                                       SWwNnOL
    register-worker register_nanny subscribe_worker_status unregister              ++++++.
    heartbeat_worker add_keys shuffle_get shuffle_get_or_create                    ++++++.
    shuffle_barrier shuffle_restrict_task                                          ++++++.
    restart restart_workers terminate adaptive_target set_resources                ++++++.
    set_restrictions amm_handler workers_to_close retire_workers                   ++++++.
    keep-alive release-worker-data long-running reschedule steal-response          i+iiii.
    worker-status-change add-keys request-refresh-who-has                          i+iiii.
    task-finished task-erred log-event                                             i+iiii.
to worker                                                                          SWwNnOL
    free_keys shuffle_inputs_done gather terminate shuffle_receive                 ++++++.
to nanny                                                                           SWwNnOL
    instantiate kill restart terminate close_gracefully                            ++++++.
"""

#: By policy, the tables that say what is expected; rows of a later one count.
EXPECTED = {
    **dict.fromkeys(("default", "strict", "sealed"), (READY, OWNED)),
    **dict.fromkeys(("demo", "dask-cluster"), (READY,)),
    "shared": (READY, SHARED),
    **dict.fromkeys(("trusted", "observe"), (READY, TRUSTED)),
}

SUBJECT = {"address": address(1), "worker": address(1), "resolve_address": False, "keys": []}


def read(*tables: str) -> dict[tuple[str, str], str]:
    """Return the marks of each operation by its recipient and name, in the order of SWwNnOL."""
    found = {}
    for line in filter(None, "".join(tables).splitlines()):
        *names, marks = line.split()
        if names[0] == "to":
            recipient = names[1]
            continue
        found |= {(recipient, name): marks for name in names}
    return found


def text_of(policy: str) -> str:
    if policy != "shared":
        return locate(policy).read_text()
    text = locate("dask-cluster").read_text()
    for part in ("worker-reports", "nanny-reports"):
        text = text.replace(part, "cluster")
    people = (
        "control, worker-run, worker-plugins]}\n\n  # Fetching",
        "[look, get_task_stream, profile]",
    )
    for granted in people:
        assert text.count(granted) == 1
        text = text.replace(granted, granted.replace("]", ", unregister]"))
    return text


class Matrix:
    """The servers of one cluster, and what each answers to whom."""

    def __init__(self, cluster: Cluster, policy: str) -> None:
        self.doors, self.policy, self.text = cluster.doors, policy, text_of(policy)
        self.senders = SENDERS | {at: (who, who) for at, who in PEOPLE[policy].items()}
        self.cluster = cluster
        self.recipients = {"scheduler": ["scheduler"], "worker": ["worker"], "nanny": ["nanny"]}
        self.recipients["people"] = list(PEOPLE[policy].values())
        worker, nanny = type("W", (), {})(), type("N", (), {})()
        mine: Any = SimpleNamespace()
        at = {"is_scheduler": "scheduler".__eq__}
        self.servers: dict[str, tuple[Served, Any]] = {
            "scheduler": (vars(cluster.scheduler)["_safeser_served"], cluster.scheduler),
            "worker": (serve(worker, Server.WORKER, mine, **at), worker),
            "nanny": (serve(nanny, Server.NANNY, mine), nanny),
        }

    def link(self, sender: str, recipient: str) -> Any:
        principal, key = self.senders[sender]
        _, far = self.doors.links(principal, recipient, self.text)
        far.session = SimpleNamespace(peer_key=SimpleNamespace(text=key))
        return far

    async def answers(self, recipient: str) -> dict[tuple[str, str], str]:
        """Return the marks of the operations that *recipient* handles, as they turn out."""
        server = Server.CLIENT if recipient == "people" else Server(recipient)
        rows = [
            row
            for row in OPERATIONS
            if row.server is server and row.group in ("cluster", "control")
        ]
        if server is Server.CLIENT:  # it hears of one
            rows = [row for row in rows if row.name == "restart"]
        marks = {(recipient, row.name): "" for row in rows}
        for sender in "SWwNnOL":
            for row in rows:
                said = {await self.answer(sender, each, row) for each in self.recipients[recipient]}
                marks[recipient, row.name] += "/".join(sorted(said))
        return marks

    async def answer(self, sender: str, recipient: str, row: Any) -> str:
        try:
            link = self.link(sender, recipient)
        except (KeyError, HandshakeRefused):  # no such people, or no session between the two at all
            return "."
        opened = row.server is Server.SCHEDULER or sender == "S"
        if row.channel is Channel.STREAM and not opened:
            return "."  # no process has a stream to it
        request = {"op": row.wire, **SUBJECT, "id": "y", "run_id": 5}
        try:
            link.permit_named(link.inbound(row.kind, row.name), where="op")
            if row.channel is Channel.STREAM:
                self.on_stream(link, sender, row, request)
            else:
                comm = Comm(link)
                comm.peer_address = address(7)
                require_authority(*self.servers[recipient], comm, request)
        except PolicyDenied as error:
            rules = {rule: mark for mark, rule in RULES.items()}
            return rules[error.rule] if error.rule != "context.none" else "."
        return "+"

    @staticmethod
    def on_stream(link: Any, sender: str, row: Any, element: dict[str, Any]) -> None:
        if row.server is Server.SCHEDULER:
            link.permit_named(link.inbound(Kind.ADMIN, "register-worker"), where="op")
            identity = StreamIdentity(link, ClientIds(), here=True)
            own = address(1) if sender == "W" else address(2)
            identity.registers("worker-stream", {"address": own})
            assert "worker" in row.takes
            identity.check("worker-stream", element)


def differences(found: dict[Any, str], expected: dict[Any, str]) -> list[str]:
    return [
        f"to {to}: {name} is {found.get((to, name))}, and is to be {expected.get((to, name))}"
        for to, name in sorted(found.keys() | expected.keys())
        if found.get((to, name)) != expected.get((to, name))
    ]


@pytest.mark.parametrize("policy", PEOPLE)
def test_each_pair_has_what_is_written_here_and_no_more(doors, policy):
    async def main(c: Cluster) -> None:
        await c.register(1, "one", nanny=address(9))
        await c.register(2, "two", nanny=address(8))
        matrix = Matrix(c, policy)
        found: dict[tuple[str, str], str] = {}
        for recipient in matrix.recipients:
            found |= await matrix.answers(recipient)
        assert differences(found, read(*EXPECTED[policy])) == []

    on(doors, True, main, policy=text_of(policy))


def test_the_tables_name_every_operation_of_both_groups():
    handled = {
        (row.server.value.replace("client", "people"), row.name)
        for row in OPERATIONS
        if row.group in ("cluster", "control")
        or (row.server, row.name) == (Server.CLIENT, "restart")
    }
    assert read(READY).keys() == handled
