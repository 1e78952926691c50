"""Which names of Dask differ once a whole cluster and its clients run on ``safeser://``.

Imports all of dask and distributed, notes every function and class attribute, module attribute and
item of their dictionaries by identity, starts each kind of server and client, and prints what is
another object by then. Also prints what the servers hold that is not of their class.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import MethodType, ModuleType
from typing import Any

import dask
import distributed

PACKAGES = (dask, distributed)

#: Test suites, programs, and what starts something when it is imported.
LEFT_OUT = ("tests", "__main__", "conftest", "utils_test", "pytest_resourceleaks", "_ucx", "ucx")

_ABSENT = object()


def import_all() -> None:
    for package in PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not any(part in LEFT_OUT for part in found.name.split(".")):
                try:
                    importlib.import_module(found.name)
                except ImportError:
                    continue  # of a library that is not installed


def of_dask(name: object) -> bool:
    return isinstance(name, str) and name.partition(".")[0] in ("dask", "distributed")


def named() -> Iterator[tuple[str, Any]]:
    """Yield every name of Dask with what it stands for now."""
    for module in [each for name, each in sorted(sys.modules.items()) if of_dask(name)]:
        if not isinstance(module, ModuleType):
            continue
        for name, value in list(vars(module).items()):
            path = f"{module.__name__}:{name}"
            if isinstance(value, type) and value.__module__ == module.__name__:
                yield from attributes(f"{module.__name__}:{value.__qualname__}", value)
            yield path, value
            yield from items(path, value)


def attributes(path: str, cls: type) -> Iterator[tuple[str, Any]]:
    for name, value in list(vars(cls).items()):
        yield f"{path}.{name}", value
        if isinstance(value, type) and value.__qualname__.startswith(f"{cls.__qualname__}."):
            yield from attributes(f"{path}.{name}", value)
        yield from items(f"{path}.{name}", value)


def items(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if type(value) is dict:
        for key, item in list(value.items()):
            if isinstance(key, str):
                yield f"{path}[{key}]", item


def handlers_of(server: Any) -> Iterator[tuple[str, Any]]:
    for table in ("handlers", "stream_handlers", "_stream_handlers"):
        for name, handler in getattr(server, table, {}).items():
            yield f"{table}[{name}]", handler


def foreign(server: Any) -> list[str]:
    """Return what *server* holds that another module put there, or that its class does not have."""
    kind = type(server).__name__
    found = [
        f"{kind}.{name}"
        for name, value in vars(server).items()
        if callable(value) and (name in dir(type(server)) or is_safesers(value))
    ]
    for place, handler in handlers_of(server):
        if isinstance(handler, MethodType):
            name = handler.__func__.__name__
            own = getattr(type(handler.__self__), name, None) is handler.__func__
        else:
            own = of_dask(getattr(handler, "__module__", None))
        if not own:
            found.append(f"{kind}.{place}")
    plugins = getattr(server, "plugins", None) or {}
    found += [f"{kind}.plugins[{name}]" for name, each in plugins.items() if is_safesers(each)]
    extensions = getattr(server, "extensions", None) or {}
    found += [f"{kind}.extensions[{n}]" for n, each in extensions.items() if is_safesers(each)]
    return found


def is_safesers(value: Any) -> bool:
    module = getattr(value, "__module__", None) or type(value).__module__
    return str(module).partition(".")[0] == "safeser"


#: What Dask changes of itself while a client and a server run.
_DASKS_OWN = (
    "dask.config:config[scheduler]",
    "dask.context:_globals[scheduler]",
    "distributed.gc:_gc_diagnosis_users",
)


def difference(before: dict[str, Any], after: dict[str, Any], targets: list[str]) -> list[str]:
    """Return the names that stand for another object in *after*, each once."""
    changed = {
        path
        for path in before.keys() | after.keys()
        if before.get(path, _ABSENT) is not after.get(path, _ABSENT)
    }
    found = set()
    for path in changed:
        holder, bracket, key = path.partition("[")
        if bracket and holder in changed:
            continue  # another dictionary
        if bracket:
            # A dictionary may have several names.
            held = after[holder]
            known = (*targets, *_DASKS_OWN)
            same = [each for each in known if after.get(each.partition("[")[0]) is held]
            path = next((each for each in same if each.endswith(f"[{key}")), path)
        # Kept by copyreg for each class of which an instance was pickled.
        if path not in _DASKS_OWN and not path.endswith(".__slotnames__"):
            found.add(path)
    return sorted(found)


async def compared(folder: Path) -> dict[str, Any]:
    from safeser.identities import make_identities

    keys, roles = folder / "keys", ("scheduler", "worker", "nanny", "client")
    make_identities(keys, roles)
    settings = {role: {"identity": str(keys / f"{role}.key")} for role in roles}
    # Every row of the list, also the one that a setting asks for.
    settings["tokenizer"] = "safeser"
    with dask.config.set({"safeser": {"audit": str(folder / "audit"), **settings}}):
        return await started()


async def started() -> dict[str, Any]:
    from distributed import Client, Nanny, Scheduler, Worker

    # Made before anything here has to do with safeser, as Dask's own commands make it.
    web = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    scheduler = Scheduler(host="127.0.0.1", port=0, protocol="safeser", **web)
    assert "safeser.dask.patches" not in sys.modules
    before = dict(named())
    async with (
        scheduler,
        Worker(scheduler.address, nthreads=1) as worker,
        Nanny(scheduler.address, nthreads=1) as nanny,
        Client(scheduler.address, asynchronous=True) as client,
    ):
        import safeser
        import safeser.dask.client  # what it is to import it
        from safeser.dask.patches import PATCHES

        async with safeser.Client(scheduler.address, asynchronous=True) as own:
            [data] = await own.scatter([1])
            assert await own.submit(lambda x: x + 1, data) == 2
            after = dict(named())
            servers = [scheduler, worker, nanny, client]
            targets = sorted(each.target for each in PATCHES)
            return {
                "changed": difference(before, after, targets),
                "targets": targets,
                "foreign": [each for server in servers for each in foreign(server)],
            }


def main() -> None:
    import_all()
    folder = Path(sys.argv[1])
    found = asyncio.run(compared(folder))
    from safeser.dask.settings import close_channels_in

    close_channels_in(folder)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
