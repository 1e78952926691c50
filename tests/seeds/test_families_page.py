"""Dask's page on serialization, sentence by sentence, with safeser in place of its protocol.

https://distributed.dask.org/en/stable/serialization.html
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import safeser
from safeser import families
from safeser.errors import ConfigError, PayloadError, PolicyDenied, SerializationError
from safeser.families import Unencodable
from safeser.families.registered.dispatch import Dispatch, Functions
from safeser.families.registered.hosted import SMALL_FRAME
from safeser.families.registry import Registry
from safeser.gate.values import Context, Limits
from tests.needs import needs
from tests.seeds.running import run

#: The page's own example, but for the name of the package.
HUMAN = """
from typing import Dict, List, Tuple

class Human:
    def __init__(self, name):
        self.name = name

from safeser import dask_serialize, dask_deserialize

@dask_serialize.register(Human)
def serialize(human: Human) -> Tuple[Dict, List[bytes]]:
    header = {}
    frames = [human.name.encode()]
    return header, frames

@dask_deserialize.register(Human)
def deserialize(header: Dict, frames: List[bytes]) -> Human:
    return Human(frames[0].decode())

import safeser
print(safeser.deserialize(*safeser.serialize(Human("Alice"))).name)
print(safeser.deserialize_bytes(safeser.serialize_bytes([Human("Bob")]))[0].name)
"""


def test_the_example_of_a_class_runs_as_it_stands():
    assert run("-W", "error", "-c", HUMAN).out == "Alice\nBob\n"


class Blob:
    def __init__(self, content, context=None):
        self.content = content
        self.context = context


@pytest.mark.parametrize("views", [False, True])
def test_functions_get_bytes_and_large_frames_uncopied_where_they_ask(views):
    def rebuild(header, frames):
        return Blob(frames[0])

    cls = type("Blob", (Blob,), {"__module__": "__main__", "__qualname__": f"Blob{views}"})
    safeser.dask_serialize.register(cls, lambda x: ({}, [x.content]))
    safeser.dask_deserialize.register(cls, lambda h, f: cls(f[0]), views=views)
    small, large = bytes(SMALL_FRAME - 1), bytes(SMALL_FRAME)
    kinds = []
    for content in (small, large):
        header, frames = safeser.serialize(cls(content))
        back = safeser.deserialize(header, [memoryview(frame) for frame in frames])
        assert back.content == content
        kinds.append(type(back.content))
    assert kinds == [bytes, memoryview if views else bytes]


def test_a_family_of_the_programs_own_may_ask_for_views_too():
    seen = []

    def dumps(x):
        return {}, [x]

    def loads(header, frames):
        seen.extend(map(type, frames))
        return bytes(frames[0])

    safeser.register_serialization_family("seeds_views", dumps, loads, views=True)
    safeser.register_serialization_family("seeds_bytes", dumps, loads)
    for family in ("seeds_views", "seeds_bytes"):
        header, frames = safeser.serialize(bytes(SMALL_FRAME), [family])
        assert safeser.deserialize(header, frames, [family]) == bytes(SMALL_FRAME)
    assert seen == [memoryview, bytes]


# --- register_generic ----------------------------------------------------------------------------


class Wraps:
    def __init__(self):
        self.array = np.arange(1000)
        self.label = "small"


def dispatches():
    functions = Functions(Registry())
    return Dispatch("dumps", functions), Dispatch("loads", functions)


def test_register_generic_takes_the_arguments_that_dasks_takes():
    from dask.utils import Dispatch as DaskDispatch

    serialize, deserialize = DaskDispatch(), DaskDispatch()
    safeser.register_generic(Wraps, "dask", serialize, deserialize)
    header, frames = serialize(Wraps())
    assert "cls" not in repr(header)
    back = deserialize.dispatch(Wraps)(header, frames)
    assert (type(back), back.label) == (Wraps, "small")
    np.testing.assert_array_equal(back.array, np.arange(1000))
    # The process's own registry does not know the class.
    with pytest.raises(SerializationError):
        safeser.serialize(Wraps(), on_error="raise")


def test_a_dispatch_of_ones_own_takes_no_subclass_for_its_base():
    """Dask's dispatch serves subclasses by their base's function, which loses what they add."""
    from dask.utils import Dispatch as DaskDispatch

    serialize, deserialize = DaskDispatch(), DaskDispatch()
    safeser.register_generic(Wraps, "dask", serialize, deserialize)
    with pytest.raises(Unencodable) as caught:
        serialize(type("More", (Wraps, list), {})())
    assert caught.value.reason == "it is no direct instance of Wraps"


def test_a_dispatch_of_ones_own_opens_no_pickle():
    serialize, deserialize = dispatches()
    safeser.register_generic(Wraps, "dask", serialize, deserialize)
    pair = deserialize._known._pairs[f"{__name__}:Wraps"]
    header, frames = families.serialize({"a": {1}}, ["pickle"])
    with pytest.raises(PolicyDenied):
        pair.loads(header, frames)


@pytest.mark.parametrize("which", [0, 1])
def test_both_dispatches_or_neither(which):
    given = [safeser.dask_serialize, safeser.dask_deserialize]
    given[which] = dispatches()[which]
    with pytest.raises(ConfigError) as caught:
        safeser.register_generic(Wraps, "dask", *given)
    assert caught.value.fix == "Pass both, or neither."


# --- the communication context -------------------------------------------------------------------


#: The family of examples/same_host.py on a cluster, under the ready policy with that family added.
ONE_HOST = """
import sys, dask, numpy as np, safeser
from safeser.dask.cluster import LocalCluster

def mapped(array):
    return isinstance(array.base, np.memmap), float(array.sum())

def main():
    dask.config.set({"distributed.worker.preload": ["shared_memory"]})
    with LocalCluster(n_workers=2, threads_per_worker=1, policy="./one-host.yaml") as cluster:
        with safeser.Client(cluster) as client:
            one, other = client.scheduler_info()["workers"]
            made = client.submit(np.ones, 1_000_000, workers=[one])
            print(client.submit(mapped, made, workers=[other]).result())

if __name__ == "__main__":
    sys.path.insert(0, "")
    import shared_memory
    main()
"""

PRELOADED = """
import sys
sys.path.append({examples!r})
import safeser, same_host
safeser.register_serialization_family("shared", same_host.dumps, same_host.loads)
"""


@pytest.mark.cluster
@needs("/dev/shm", Path("/dev/shm").is_dir())
def test_a_family_uses_shared_memory_between_workers_of_one_host(tmp_path):
    project = Path(__file__).parents[2]
    default = (project / "policies" / "default.yaml").read_text("utf-8")
    before, _, after = default.partition("  - name: workers-exchange")
    listed = "serializers: [dask, msgpack, pickle, cloudpickle]"
    after = after.replace(listed, listed.replace("[", "[shared, "), 2)
    declared = before.replace("principals:", "families: [shared]\nprincipals:", 1)
    policy = f"{declared}  - name: workers-exchange{after}"
    assert policy.count("[shared, dask") == 2  # to send and to open, between workers alone
    (tmp_path / "one-host.yaml").write_text(policy, "utf-8")
    (tmp_path / "program.py").write_text(ONE_HOST, "utf-8")
    (tmp_path / "shared_memory.py").write_text(
        PRELOADED.format(examples=str(project / "examples")), "utf-8"
    )
    ended = run("program.py", cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert ended.out.splitlines()[-1] == "(True, 1000000.0)"


def test_no_policy_decides_by_addresses():
    one, other = (Context("a", "b", addresses=(f"tcp://{n}", "tcp://0")) for n in (1, 2))
    assert one == other
    assert hash(one) == hash(other)
    assert "tcp" not in repr(one)


def test_what_such_a_dispatch_reads_is_held_to_the_limits_of_its_message():
    from dask.utils import Dispatch as DaskDispatch

    serialize, deserialize = DaskDispatch(), DaskDispatch()
    safeser.register_generic(Wraps, "dask", serialize, deserialize)

    def dumps(x):
        header, frames = serialize(x)
        return {"inside": header}, frames

    def loads(header, frames):
        return deserialize.dispatch(Wraps)(header["inside"], frames)

    safeser.register_serialization_family("seeds_generic", dumps, loads)
    wide = Wraps()
    wide.label = list(range(5_000))
    header, frames = safeser.serialize(wide, ["seeds_generic"])
    assert safeser.deserialize(header, frames, ["seeds_generic"]).label == wide.label
    with pytest.raises(PayloadError) as caught:
        safeser.deserialize(header, frames, ["seeds_generic"], limits=Limits(max_memory=1_000 << 7))
    assert caught.value.rule == "families.memory"


def test_a_family_of_distributed_s_own_function_is_said_to_be_ignored(monkeypatch):
    """At the client that names it: the policy can list no family that safeser does not know."""
    from safeser.dask.security import checked_families, distributed_families

    monkeypatch.setitem(distributed_families, "theirs", (None, None, False))

    with pytest.raises(ConfigError) as caught:
        checked_families(["dask", "theirs"], argument="serializers")
    assert "call safeser.register_serialization_family" in caught.value.fix
    with pytest.raises(ConfigError) as caught:
        checked_families(["dask", "pickl"], argument="serializers")
    assert caught.value.fix == "Did you mean 'pickle'?"


def test_a_family_that_is_not_registered_here_is_named():
    """Where a policy lists one, nothing can be sent until the process registers it."""
    with pytest.raises(SerializationError) as caught:
        families.serialize(1, ["dask", "seeds_absent"])
    assert caught.value.message == "family seeds_absent is listed, and not registered here"
    assert caught.value.rule == "families.serializer"
