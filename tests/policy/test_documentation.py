"""What the page about restricted pickle shows loads, and what it says of limits is so."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from safeser.gate.values import Limits
from safeser.pickles import DATA_PROFILES
from safeser.policy import Policy
from safeser.policy.rules import PROFILES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "restricted-pickle.md").read_text(
    "utf-8"
)
HEAD = "safeser: 1\nname: d\nrevision: 1\nprincipals: {a: {}, b: {}}\ncontexts:\n"


def test_the_policy_loads() -> None:
    (block,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)
    indented = "".join(f"  {line}\n" for line in block.splitlines())
    context = "- name: x\n  sender: a\n  recipient: b\n  deserializers: [msgpack, pickle]\n"
    (rule,) = Policy.parse(HEAD + context + indented).contexts
    assert [allowed.role for allowed in rule.allow] == [
        "class",
        "class",
        "reference",
        "class",
        "reference",
    ]


def test_every_limit_of_pickles_and_profile_is_named() -> None:
    for field in dataclasses.fields(Limits):
        if field.name not in ("max_frames", "max_header", "max_connections"):
            assert f"`{field.name}`" in PAGE
    assert f"{Limits().max_calls:,}" in PAGE
    for name in DATA_PROFILES:
        assert f"`{name}`" in PAGE


def test_a_policy_may_name_the_profiles_that_there_are() -> None:
    # Two lists, since policy does not import pickles: one that lags behind refuses a good policy,
    # or accepts one that no load can follow.
    assert PROFILES == DATA_PROFILES


def test_the_policies_of_the_how_to_pages_load() -> None:
    found: list[str] = []
    for name in ("policy.md", "policy-contexts.md", "confined-workers.md"):
        text = (Path(__file__).parents[2] / "docs" / "how-to" / name).read_text("utf-8")
        found += re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    assert Policy.parse(found[0]).name == "production"
    shown = [block for block in found[1:] if "    confined:" in block]
    assert len(shown) == 2
    grant = "operations: {grant: [basic, cluster]}"
    end = f"- {{name: x, sender: worker, recipient: scheduler, {grant}}}\n"
    for block in shown:
        block += "" if "  scheduler:" in block else "  scheduler: {}\n"
        text = f"safeser: 1\nname: x\nrevision: 1\n{block}contexts:\n{end}"
        confined = Policy.parse(text).principals["worker"].confined
        assert confined is not None
        assert (confined.read, confined.write) == (("/data/sales",), ("/scratch/analysts",))
        assert (confined.execute, confined.connect) == (False, "cluster")
        assert confined.ports == (range(8786, 8787), range(9000, 9100))
