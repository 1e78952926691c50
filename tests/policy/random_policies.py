"""Small random policies that load, and questions to ask them."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.gate.values import Context, Kind
from safeser.policy import Policy

PRINCIPALS = {"a": {"groups": ["g"]}, "b": {"groups": ["g", "h"]}, "c": {}}
NAMES = ("a", "b", "c", "stranger")
FAMILIES = (None, "msgpack", "error", "dask", "pickle", "cloudpickle", "sealed", "frames", "cuda")
OPERATIONS_ASKED = (
    None,
    "identity",
    "update-graph",
    "run",
    "gather",
    "compute-task",
    "UPDATE-GRAPH",
    "",
    "no-such",
)
LISTABLE = ("dask", "pickle", "cloudpickle", "frames")


#: The day on which policies are asked that do not say another; some dates are before it.
DAY = "2026-03-15"
DATES = ("2026-03-14", "2026-03-15", "2026-06-30")

GRANTED = ("basic", "diagnose", "run", "gather", "compute-task", "worker-run")


def some(values: Any, most: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=most, unique=True)


@st.composite
def contexts(draw: st.DrawFn) -> dict[str, Any]:
    ends = some(("a", "b", "c", "group:g", "group:h", "unknown"), 3)
    rule: dict[str, Any] = {"sender": draw(ends), "recipient": draw(ends)}
    if draw(st.booleans()):
        rule["kinds"] = draw(some([kind.value for kind in Kind], 3))
    for side in ("serializers", "deserializers"):
        if draw(st.booleans()):
            rule[side] = ["msgpack", *draw(some(LISTABLE, 3))]
    if draw(st.booleans()):
        rule["operations"] = {"grant": draw(some(GRANTED, 3))}
    if draw(st.booleans()):
        rule["submission"] = draw(st.sampled_from(("code", "sealed")))
    if draw(st.booleans()):
        rule["authors"] = draw(some(("a", "c", "group:g"), 2))
    if draw(st.booleans()):
        rule["transport"] = draw(some(("safeser", "library", "tcp"), 2))
    if draw(st.booleans()):
        rule["same_host"] = draw(st.booleans())
    if draw(st.booleans()):
        rule["until"] = draw(st.sampled_from(DATES))
    return legal(rule)


def legal(rule: dict[str, Any]) -> dict[str, Any]:
    """Cut *rule* to what loads, so that few random policies are thrown away."""
    unknown = "unknown" in rule["sender"] + rule["recipient"]
    if unknown:
        rule.pop("submission", None)
    keep = {"msgpack", "dask", *(() if unknown else ("pickle", "frames"))}
    if rule.get("submission") == "code":
        keep.add("cloudpickle")
    if rule.get("kinds") == ["admin"]:
        keep = {"msgpack"}
    for side in ("serializers", "deserializers"):
        if side in rule:
            rule[side] = [family for family in rule[side] if family in keep]
            if "cloudpickle" in rule[side] and "pickle" not in rule[side]:
                rule[side].append("pickle")
    kinds = rule.get("kinds", ["control"])
    grant = [
        name
        for name in rule.get("operations", {}).get("grant", [])
        if (name != "run" or (rule.get("submission") == "code" and "control" in kinds))
        and (name != "worker-run" or (rule.get("submission") == "sealed" and "control" in kinds))
        and (name != "gather" or kinds != ["admin"])
        and (name != "compute-task" or {"task", "control"} & {*kinds})
        and (not unknown or name in ("basic", "gather"))
    ]
    rule.pop("operations", None)
    if grant:
        rule["operations"] = {"grant": grant}
    graphs = [side for side in ("serializers", "deserializers") if "pickle" in rule.get(side, ())]
    if rule.get("submission") == "sealed" and not {"basic", "compute-task", "worker-run"} & {
        *grant
    }:
        rule.pop("submission")
    if (
        (not graphs and rule.get("submission") != "sealed")
        or rule["sender"] in (["a"], ["c"])
        or "safeser" not in rule.get("transport", ["safeser"])
    ):
        rule.pop("authors", None)
    if rule.get("transport") == ["tcp"] and not unknown:
        rule.pop("transport")
    if rule.get("transport") == ["safeser"] and ["unknown"] in (rule["sender"], rule["recipient"]):
        rule.pop("transport")
    return rule


def written(rules: list[dict[str, Any]]) -> dict[str, Any]:
    named = [{"name": f"x{index}", **rule} for index, rule in enumerate(rules)]
    head = {"safeser": 1, "name": "random", "revision": 1}
    return {**head, "families": ["frames"], "principals": PRINCIPALS, "contexts": named}


def noon(day: str) -> float:
    """Return seconds since 1970."""
    moment = datetime.datetime.fromisoformat(day).replace(hour=12, tzinfo=datetime.UTC)
    return moment.timestamp()


def loaded(policy: dict[str, Any], *, day: str = DAY) -> Policy:
    now = noon(day)
    return Policy.parse(json.dumps(policy, indent=1), clock=lambda: now)


@st.composite
def policies(draw: st.DrawFn) -> dict[str, Any]:
    drawn = draw(st.lists(contexts(), min_size=1, max_size=4))
    with contextlib.suppress(ConfigError):
        loaded(written(drawn))
        return written(drawn)
    rules: list[dict[str, Any]] = []
    for rule in drawn:
        try:
            loaded(written([*rules, rule]))
        except ConfigError:
            continue  # unreachable below the others
        rules.append(rule)
    assume(rules)
    return written(rules)


def questions() -> Iterator[tuple[Context, Any, bool, str | None]]:
    # Each with one way that it came and one author: all together would be thirty times as many.
    ways = itertools.cycle(
        [*itertools.product(("safeser", "library", "tcp"), (True, False)), (None, None)]
    )
    authors = itertools.cycle(("any", "a", "unknown", "b", "c"))
    for sender, recipient, kind in itertools.product(NAMES, NAMES, Kind):
        for operation in OPERATIONS_ASKED:
            transport, same_host = next(ways)
            context = Context(
                sender, recipient, kind, operation, transport=transport, same_host=same_host
            )
            for family in FAMILIES:
                yield context, family, False, None
                yield context, family, True, None
                yield context, family, False, next(authors)


QUESTIONS = tuple(questions())

#: Of each policy every eleventh question is asked, from another one on: many policies find more
#: than all questions to few.
STEP = 11
STARTS = st.integers(0, STEP - 1)


def permits(policy: Policy, question: tuple[Context, Any, bool, str | None]) -> bool:
    context, family, sealing, author = question
    return policy.decide(context, family, sealing=sealing, author=author).permitted
