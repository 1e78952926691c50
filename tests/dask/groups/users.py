"""What the users of two worker groups do; each program prints its outcome as one line of JSON."""

from __future__ import annotations

import json
import sys
import time
import uuid
from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import get_worker

import safeser
from safeser.errors import SafeserError

ADDRESS, FOLDER = sys.argv[2], Path(sys.argv[3])
TIMEOUT = 60


def client(principal):
    security = safeser.Security(
        identity=str(FOLDER / "keys" / f"{principal}.key"),
        policy=str(FOLDER / "policy.yaml"),
        audit=str(FOLDER / "audit"),
    )
    return safeser.Client(ADDRESS, security=security, timeout=TIMEOUT)


def where(x=None, seconds=0.0, after=None):
    time.sleep(seconds)
    return get_worker().name


def add(x, y=1):
    return x + y


def made(rows):
    return np.arange(rows)


#: The names of all workers, by their addresses.
NAMES = {}


def look_at_workers(user, count):
    """Note the names of *count* workers; clients hear of them from time to time."""
    while len(NAMES) < count:
        workers = user.scheduler_info(n_workers=-1)["workers"]
        NAMES.update((at, each["name"]) for at, each in workers.items())


def holders(user, *futures):
    """Return the names of the workers that have each of *futures*."""
    return [sorted(NAMES[at] for at in user.who_has(each)[each.key]) for each in futures]


def settle(*futures):
    """Wait until *futures* are over, each in the event loop of its own client.

    Dask's ``wait`` takes that of the client that was made last.
    """
    for each in futures:
        each.exception(TIMEOUT)


def lent(owner, future, user):
    """Return *future* as another user has it."""
    owner.publish_dataset(**{future.key: future})
    return user.get_dataset(future.key)


def rule(act):
    try:
        return act()
    except SafeserError as error:
        return error.rule


def early():
    """Submit more than fits while one group is there alone, and go on when the other one comes."""
    alice = client("alice")
    futures = alice.map(where, range(60), seconds=0.05, pure=False)
    carol = client("carol")
    waiting = carol.submit(where, 0)
    settle(futures[0])
    print("submitted", flush=True)
    return {
        "analyst": sorted(set(alice.gather(futures))),
        "engineer": waiting.result(TIMEOUT),
    }


def day():
    alice, carol, erin, kate = map(client, ("alice", "carol", "erin", "kate"))
    look_at_workers(alice, 4)
    at = {name: address for address, name in NAMES.items()}
    done = {}

    def ran(user, count, **options):
        futures = user.map(where, range(count), pure=False, **options)
        return sorted(set(user.gather(futures)))

    done["analyst"] = ran(alice, 40)
    done["engineer"] = ran(carol, 40)
    done["in both"] = set(ran(erin, 200, seconds=0.01)) <= set(at)
    done["stolen"] = ran(alice, 40, seconds=0.05)
    done["none"] = rule(lambda: kate.submit(add, 1).result(TIMEOUT))

    # -- annotations
    done["others'"] = ran(alice, 4, workers=[at["e-0"]], allow_other_workers=True)
    done["some"] = ran(alice, 4, workers=[at["e-0"], at["a-0"]])
    done["name"] = ran(alice, 4, workers="a-1")
    lost = alice.submit(where, 1, workers=[at["e-0"]], key="lost")
    done["both groups, own"] = ran(erin, 4, workers=[at["e-1"]])

    # -- values
    own = alice.submit(made, 1000, key="own")
    theirs = carol.submit(made, 1000, key="theirs")
    settle(own, theirs)
    alice.replicate([own])
    done["replicated"] = holders(alice, own)[0]
    carol.replicate([lent(alice, own, carol)], workers=[at["e-0"], at["e-1"]])
    done["replicated by others"] = holders(alice, own)[0]
    done["scattered"] = holders(alice, alice.scatter(made(9), broadcast=True))[0]
    done["scattered elsewhere"] = rule(lambda: alice.scatter([5], workers=[at["e-0"]]))
    alike = [alice.submit(made, 1000 + n, workers=[at["a-0"]]) for n in range(20)]
    settle(*alike)
    alice.rebalance()
    done["rebalanced"] = sorted({name for each in holders(alice, *alike) for name in each})

    # -- dependencies
    far = lent(carol, theirs, alice)
    done["of others"] = rule(lambda: alice.submit(add, far).result(TIMEOUT))
    data = lent(carol, carol.scatter({"data": 5})["data"], alice)
    done["data of others"] = rule(lambda: alice.submit(add, data).result(TIMEOUT))
    mine = erin.submit(where, None, after=erin.get_dataset("own"), pure=False)
    done["of one group"] = mine.result(TIMEOUT)[0]
    far = [erin.get_dataset("own"), erin.get_dataset("theirs")]
    done["of both groups"] = rule(lambda: erin.submit(where, far).result(TIMEOUT))

    # -- one key
    first = carol.submit(add, 1, key="shared")
    settle(first)
    shared = alice.submit(add, 1, key="shared")
    settle(shared)
    done["shared"] = [name[0] for name in holders(alice, shared)[0]]
    done["after shared"] = rule(lambda: alice.submit(add, shared).result(TIMEOUT))

    # -- shuffles
    frame = dd.from_pandas(pd.DataFrame({"x": range(400), "y": [1.5] * 400}), npartitions=8)
    shuffled = alice.persist(frame.shuffle("x", npartitions=8))
    done["shuffle"] = int(alice.compute(shuffled.x.sum()).result(TIMEOUT))
    parts = alice.futures_of(shuffled)
    settle(*parts)
    done["shuffled"] = sorted({name for each in holders(alice, *parts) for name in each})

    # -- a worker that leaves
    kept = [alice.submit(made, n, workers=[at["a-1"]], key=f"kept-{n}") for n in range(5)]
    settle(*kept)
    alice.retire_workers([at["a-1"]])
    done["retired"] = sorted({name for each in holders(alice, *kept) for name in each})
    done["not retired"] = alice.retire_workers([at["a-0"]])
    done["kept"] = sorted({name for each in holders(alice, *kept) for name in each})
    done["lost"] = lost.status
    return done


def alone():
    """Submit where no worker of the group is there, and wait until one is."""
    alice = client("alice")
    future = alice.submit(where, uuid.uuid4().hex)
    other = client("carol").submit(where, 0).result(TIMEOUT)
    print("submitted", flush=True)
    return {"other": other[0], "analyst": future.result(TIMEOUT)}


if __name__ == "__main__":
    print(json.dumps({"early": early, "day": day, "alone": alone}[sys.argv[1]]()), flush=True)
