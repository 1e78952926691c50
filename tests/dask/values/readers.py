"""Who reads whose values as a client; prints the outcome as one line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import numpy as np
from distributed import Future, Variable
from distributed.comm import connect
from distributed.core import send_recv

import safeser
from safeser.errors import SafeserError

ADDRESS, FOLDER = sys.argv[1], Path(sys.argv[2])
TIMEOUT = 60


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


def main():
    alice, carol, erin, vera = map(client, ("alice", "carol", "erin", "vera"))
    alice.wait_for_workers(2, timeout=TIMEOUT)
    one, _ = alice.scheduler_info(n_workers=-1)["workers"]
    theirs = carol.submit(made, 3, key="theirs", workers=[one])
    own = alice.submit(made, 2, key="own", workers=[one])
    for each in (theirs, own):
        each.exception(TIMEOUT)
    done = {}

    # -- a user asks by key
    done["by key"] = rule(lambda: named(alice, "theirs").result(TIMEOUT))
    done["by key, own"] = rule(lambda: named(alice, "own").result(TIMEOUT))
    done["by key, listed"] = rule(lambda: vera.gather(named(vera, "theirs")))
    done["why"] = said(lambda: named(alice, "theirs").result(TIMEOUT))

    # -- directly
    done["direct"] = rule(lambda: alice.gather(named(alice, "theirs"), direct=True))
    done["direct, own"] = rule(lambda: alice.gather(own, direct=True))
    done["direct, listed"] = rule(lambda: vera.gather(named(vera, "theirs"), direct=True))
    done["from a worker"] = ask("alice", one, "get_data", keys=["theirs"])
    done["from a worker, listed"] = ask("vera", one, "get_data", keys=["own", "theirs"])
    done["meant"] = ask("vera", one, "get_data", keys=["own", "theirs"], author="carol")

    # -- by what depends on it
    done["input"] = rule(lambda: alice.submit(add, named(alice, "theirs")).result(TIMEOUT))
    done["input, listed"] = rule(lambda: erin.submit(add, named(erin, "theirs")).result(TIMEOUT))
    same = carol.submit(made, 3, key="same")
    same.exception(TIMEOUT)
    done["same task"] = rule(lambda: alice.submit(made, 3, key="same").result(TIMEOUT))

    # -- by what holds a future
    Variable("variable", client=carol).set(theirs)
    done["variable"] = rule(lambda: Variable("variable", client=alice).get(TIMEOUT).result(TIMEOUT))

    # -- by a dataset
    carol.publish_dataset(given=carol.submit(made, 1, key="given"))
    done["published"] = rule(lambda: alice.get_dataset("given").result(TIMEOUT))

    # -- by copies, which stay their author's
    carol.replicate([theirs])
    done["copy"] = rule(lambda: named(alice, "theirs").result(TIMEOUT))

    # -- an actor
    actor = carol.submit(Counter, actor=True, key="actor").result(TIMEOUT)
    asked = {"actor": "actor", "attribute": "secret"}
    done["actor"] = ask("alice", actor._address, "actor_attribute", **asked)
    done["actor, listed"] = ask("erin", actor._address, "actor_attribute", **asked)["result"]
    return done


if __name__ == "__main__":
    print(json.dumps(main(), default=str), flush=True)
