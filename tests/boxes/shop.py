"""The app that the tests' workers and clients make, as a program makes it.

``WORLD`` is a folder: ``keys``, ``ran`` for what tasks did. ``REDIS`` is the path of a socket.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import celery

import safeser
from safeser.boxes.kombu import install

WORLD = Path(os.environ["WORLD"])


def made(principal: str) -> celery.Celery:
    """Return the app as *principal* makes it."""
    url = f"redis+socket://{os.environ['REDIS']}"
    app = celery.Celery("shop", broker=url, backend=url)
    keys = WORLD / "keys"
    once = safeser.Once(WORLD / "once") if principal == "worker" else None
    box = safeser.Box.at(keys, principal, audit=WORLD / principal)
    install(app, box, tasks="worker", results="web", ttl=600, once=once)

    @app.task(name="total")
    def total(array):
        return array.sum()

    @app.task(name="note", bind=True)
    def note(self, text):
        with (WORLD / "ran").open("a") as file:
            file.write(f"{text} of {self.request.safeser.sender}\n")

    @app.task(name="remove")
    def remove(text):
        with (WORLD / "ran").open("a") as file:
            file.write(f"REMOVED {text}\n")

    @app.task(name="fail")
    def fail():
        raise ZeroDivisionError("by zero")

    @app.task(name="fail_strangely")
    def fail_strangely():
        raise subprocess.CalledProcessError(1, "x")

    @app.task(name="again", bind=True)
    def again(self):
        if self.request.retries == 0:
            raise self.retry(countdown=0)
        return self.request.retries

    return app


if "PRINCIPAL" in os.environ:
    app = made(os.environ["PRINCIPAL"])
