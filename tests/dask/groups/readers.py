"""Who reads whose values in a cluster of two groups; prints the outcome as one line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Future, Queue, Variable, secede
from distributed.comm import connect
from distributed.core import send_recv

import safeser
from safeser.errors import SafeserError

ADDRESS, FOLDER = sys.argv[1], Path(sys.argv[2])
TIMEOUT = 60

_TRANSFER = "shuffle-transfer-"


def security(principal):
    return safeser.Security(
        identity=str(FOLDER / "keys" / f"{principal}.key"),
        policy=str(FOLDER / "policy.yaml"),
        audit=str(FOLDER / "audit"),
    )


def client(principal, **options):
    return safeser.Client(ADDRESS, security=security(principal), timeout=TIMEOUT, **options)


def add(x, y=1):
    return x + y


def made(rows):
    return np.arange(rows)


class Counter:
    secret = 5

    def one(self):
        return 1


def named(user, key):
    """Return a future of *user* for a key that this user has heard of."""
    return Future(key, user, state="memory")


def rule(act):
    try:
        found = act()
    except SafeserError as error:
        return error.rule
    return found.tolist() if isinstance(found, np.ndarray) else found


def said(act):
    try:
        return act()
    except SafeserError as error:
        return str(error)


async def request(principal, address, message):
    arguments = security(principal).get_connection_args("client")
    comm = await connect(address, **arguments)
    try:
        answer = await send_recv(comm, **message)
        if message["op"] == "get_data":
            await comm.write("OK")
    finally:
        await comm.close()
    return answer


def ask(principal, address, op, **fields):
    """Ask one server by the key of *principal*, as a process does that was taken over."""

    def asked():
        message = {"op": op, "reply": True, **fields}
        answer = asyncio.run(asyncio.wait_for(request(principal, address, message), TIMEOUT))
        if isinstance(answer, dict) and isinstance(answer.get("exception"), SafeserError):
            raise answer["exception"]
        return sorted(answer["data"]) if isinstance(answer, dict) and "data" in answer else answer

    return rule(asked)


def part(number, start, go):
    """Return one part of a frame; the last one once the file *go* is there."""
    if number == 3:
        secede()  # its thread does the others meanwhile
        while not Path(go).exists():
            time.sleep(0.01)
    return pd.DataFrame({"x": range(start, start + 100)})


def begun(user):
    """Wait until a part has been transferred, and return the id of its shuffle."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        names = [key[0] for keys in user.has_what().values() for key in keys if len(key) == 2]
        for name in names:
            if name.startswith(_TRANSFER):
                return name.removeprefix(_TRANSFER)
        assert time.monotonic() < deadline, names
        time.sleep(0.01)


def shuffle_under_way(user, at):
    """Ask for a part in a shuffle of *user* while it waits for its last input."""
    where = {"worker-engineers": at["e-0"], "worker-analysts": at["a-0"]}
    worker, go = at["e-0"], FOLDER / "go"
    frame = dd.from_map(
        part, range(4), range(0, 400, 100), go=str(go), meta=pd.DataFrame({"x": [0]})
    )
    total = user.compute(user.persist(frame.shuffle("x", npartitions=4)).x.sum())
    shuffle = begun(user)
    done = {}

    def asked(principal, op, **fields):
        answer = ask(principal, ADDRESS, op, worker=where[principal], **fields)
        return answer["status"] if isinstance(answer, dict) else answer

    for principal in where:
        done[f"plan, {principal}"] = asked(principal, "shuffle_get", id=shuffle)
        done[f"joins, {principal}"] = asked(
            principal, "shuffle_get_or_create", shuffle_id=shuffle, key="k"
        )
        shards = {"shuffle_id": shuffle, "run_id": 1, "data": []}
        done[f"shards, {principal}"] = ask(principal, worker, "shuffle_receive", **shards)
    done["pins, worker-analysts"] = ask(
        *("worker-analysts", ADDRESS, "shuffle_restrict_task"),
        **{"id": shuffle, "run_id": 1, "key": "k", "worker": worker},
    )
    go.touch()
    done["total"] = int(total.result(TIMEOUT))
    return done


def main():
    alice, carol, erin, vera = map(client, ("alice", "carol", "erin", "vera"))
    while len(alice.scheduler_info(n_workers=-1)["workers"]) < 2:
        pass
    workers = alice.scheduler_info(n_workers=-1)["workers"]
    at = {each["name"]: address for address, each in workers.items()}
    theirs = carol.submit(made, 3, key="theirs")
    own = alice.submit(made, 2, key="own")
    both = erin.submit(made, 4, key="both", workers=[at["e-0"]])
    data = carol.scatter({"data": 7})["data"]
    brought = carol.scatter({"brought": 8}, direct=True, workers=[at["e-0"]])["brought"]
    for each in (theirs, own, both):
        each.exception(TIMEOUT)
    done = {}

    # -- a worker that was taken over asks another worker
    for name in ("theirs", "data", "brought", "both"):
        done[f"worker, {name}"] = ask("worker-analysts", at["e-0"], "get_data", keys=[name])
    for name in ("theirs", "data", "brought"):
        done[f"own group, {name}"] = ask("worker-engineers", at["e-0"], "get_data", keys=[name])
    # -- or the scheduler
    done["worker gathers"] = ask("worker-analysts", ADDRESS, "gather", keys=["theirs"])
    done["own group gathers"] = ask("worker-engineers", ADDRESS, "gather", keys=["theirs"])
    relayed = {"op": "get_data", "keys": ["theirs"]}
    done["relayed"] = ask("alice", ADDRESS, "proxy", worker=at["e-0"], msg=relayed)

    # -- a user asks by key
    done["by key"] = rule(lambda: named(alice, "theirs").result(TIMEOUT))
    done["by key, data"] = rule(lambda: named(alice, "data").result(TIMEOUT))
    done["by key, own"] = rule(lambda: named(alice, "own").result(TIMEOUT))
    done["by key, listed"] = rule(lambda: vera.gather(named(vera, "data")))
    done["why"] = said(lambda: named(alice, "theirs").result(TIMEOUT))
    done["skipped"] = [
        each.tolist() for each in alice.gather([own, named(alice, "theirs")], errors="skip")
    ]
    done["direct"] = rule(lambda: alice.gather(named(alice, "theirs"), direct=True))
    done["direct, own"] = rule(lambda: alice.gather(own, direct=True))
    done["from a worker"] = ask("alice", at["e-0"], "get_data", keys=["theirs"])
    done["from a worker, own"] = ask("alice", at["a-0"], "get_data", keys=["own"])

    # -- by what depends on it
    done["input"] = rule(lambda: alice.submit(add, named(alice, "theirs")).result(TIMEOUT))
    done["input, both groups"] = rule(
        lambda: erin.submit(add, named(erin, "theirs")).result(TIMEOUT)
    )
    done["input, own"] = rule(lambda: alice.submit(add, own).result(TIMEOUT))
    same = carol.submit(made, 3, key="same")
    same.exception(TIMEOUT)
    done["same task"] = rule(lambda: alice.submit(made, 3, key="same").result(TIMEOUT))

    # -- by what holds a future
    Variable("variable", client=carol).set(theirs)
    Queue("queue", client=carol).put(theirs)
    done["variable"] = rule(lambda: Variable("variable", client=alice).get(TIMEOUT).result(TIMEOUT))
    done["queue"] = rule(lambda: Queue("queue", client=alice).get(TIMEOUT).result(TIMEOUT))

    # -- by a dataset
    done["publish"] = rule(lambda: alice.publish_dataset(stolen=named(alice, "theirs")))
    done["still"] = rule(lambda: named(alice, "theirs").result(TIMEOUT))
    carol.publish_dataset(given=carol.submit(made, 1, key="given"))
    done["published"] = rule(lambda: alice.get_dataset("given").result(TIMEOUT))
    given = named(alice, "given")
    done["published, direct"] = rule(lambda: alice.gather(given, direct=True))
    done["published, worker"] = ask("worker-analysts", at["e-0"], "get_data", keys=["given"])

    # -- by copies
    alice.replicate([named(alice, "theirs")], workers=[at["a-0"]])
    done["copied"] = list(map(len, carol.who_has([theirs, data, brought]).values()))

    # -- an actor
    actor = carol.submit(Counter, actor=True, key="actor").result(TIMEOUT)
    asked = {"actor": "actor", "attribute": "secret"}
    done["actor"] = ask("worker-analysts", at["e-0"], "actor_attribute", **asked)
    done["actor, alice"] = ask("alice", at["e-0"], "actor_attribute", **asked)
    done["actor, own"] = actor.secret

    # -- a shuffle that is under way
    done.update(shuffle_under_way(carol, at))

    # -- values that both groups may have
    moved = erin.submit(add, both, workers=[at["a-0"]], key="moved")
    done["moved"] = rule(lambda: moved.result(TIMEOUT))
    erin.replicate([both])
    done["replicated"] = ask("worker-engineers", at["a-0"], "get_data", keys=["both"])
    done["replica"] = ask("worker-analysts", at["e-0"], "get_data", keys=["moved", "both"])
    frame = dd.from_pandas(pd.DataFrame({"x": range(400), "y": [1.5] * 400}), npartitions=8)
    shuffled = erin.persist(frame.shuffle("x", npartitions=8))
    done["shuffle"] = int(erin.compute(shuffled.x.sum()).result(TIMEOUT))
    done["spread"] = len({at for held in erin.who_has(shuffled).values() for at in held})
    return done


if __name__ == "__main__":
    print(json.dumps(main(), default=str), flush=True)
