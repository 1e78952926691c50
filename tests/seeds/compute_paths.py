"""The same objects by every path that submits; prints what became of each as JSON."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import threading

import dask

import safeser

LOCK = threading.Lock()
VARIABLE = contextvars.ContextVar("variable")


def plain(x):
    return x + 1


def closing_over(value):
    def inner(x):
        return (value is None) + x

    return inner


class Job:
    def __init__(self, held=None):
        self.held = held

    def method(self, x):
        return x + 1

    @classmethod
    def of_class(cls, x):
        return x + 1

    @staticmethod
    def alone(x):
        return x + 1


def local_method():
    class Local:
        def method(self, x):
            return x + 1

    return Local().method


def generator():
    yield 1


async def coroutine():
    return 1


def made(loop_task):
    """Return the objects by name; those that cannot be sent with a part of their path."""
    return {
        "function": (plain, None),
        "lambda": (lambda x: x + 1, None),
        "closure": (closing_over(1), None),
        "method": (Job().method, None),
        "class method": (Job.of_class, None),
        "static method": (Job.alone, None),
        "local method": (local_method(), None),
        "partial": (functools.partial(plain), None),
        "lock": (closing_over(LOCK), "closure variable 'value' -> _thread:lock"),
        "method of a lock": (Job(LOCK).method, "its instance -> attribute 'held' -> _thread:lock"),
        "partial of a lock": (functools.partial(closing_over(LOCK)), "_thread:lock"),
        "context variable": (closing_over(VARIABLE), "_contextvars:ContextVar"),
        "context": (closing_over(contextvars.copy_context()), "_contextvars:Context"),
        "task": (closing_over(loop_task), "_asyncio:Task"),
        "generator": (closing_over(generator()), "builtins:generator"),
        "coroutine": (closing_over(coroutine()), "builtins:coroutine"),
    }


def main(client: safeser.Client) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(asyncio.sleep(0))
    said = {}
    for name, (function, culprit) in made(task).items():
        node = dask.delayed(function, name=f"object-{name}", pure=False)(1)
        paths = {
            "submit": lambda f=function: client.submit(f, 1, pure=False).result(),
            "map": lambda f=function: client.gather(client.map(f, [1], pure=False))[0],
            "compute": lambda n=node: client.compute(n).result(),
            "persist": lambda n=node: client.persist(n).compute(),
            "dask.compute": lambda n=node: dask.compute(n)[0],
        }
        if culprit is not None:
            paths["scatter"] = lambda f=function: client.scatter(f)
        for path, run in paths.items():
            try:
                found = str(run())
            except safeser.SafeserError as error:
                found = f"[{error.rule}] {error.message}"
            said[f"{name} by {path}"] = (found, culprit)
        said[f"{name} by preflight"] = (str(client.preflight(function)), culprit)
    # In a thread of its own: a notebook runs an event loop in this one.
    thread = threading.Thread(target=loop.run_until_complete, args=(task,))
    thread.start()
    thread.join()
    loop.close()
    print(json.dumps(said))
