"""What workers and clients of the shared cluster ``sealed`` import, and its scheduler cannot."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Point:
    x: int
    y: int


class Unlucky(Exception):
    pass


tries = []


def double(x):
    return 2 * x


def total(point):
    return point.x + point.y


def fail():
    raise Unlucky("of the user's")


def flaky():
    tries.append(1)
    if len(tries) < 2:
        raise Unlucky("again")
    return "at last"


def in_place(a, b):
    a += 1
    return a - b
