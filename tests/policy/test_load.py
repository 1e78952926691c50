"""A policy that loads says what it does; everything else is an error with its place."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.gate.key_pairs import PrivateKey
from safeser.gate.values import Limits
from safeser.policy import Policy
from tests.draws import draws
from tests.refusal import refusal

HEAD = "safeser: 1\nname: test\nrevision: 3\n"
PRINCIPALS = "principals:\n  a: {groups: [red]}\n  b: {groups: [red, blue]}\n  c: {}\n"
CONTEXT = "- {name: x, sender: a, recipient: b}\n"
BODY = f"{PRINCIPALS}contexts:\n{CONTEXT}"


def policy(contexts: str = CONTEXT, *, principals: str = PRINCIPALS, more: str = "") -> Policy:
    return Policy.parse(f"{HEAD}{principals}{more}contexts:\n{contexts}", source="p.yaml")


def refused(
    contexts: str = CONTEXT, *, principals: str = PRINCIPALS, more: str = ""
) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        policy(contexts, principals=principals, more=more)
    error = caught.value
    assert error.where.startswith("p.yaml, line "), error
    assert str(error).isprintable()
    return error


def one(fields: str, sender: str = "a", recipient: str = "b") -> str:
    return f"- {{name: x, sender: {sender}, recipient: {recipient}, {fields}}}\n"


# --- what loads -------------------------------------------------------------------------------


def test_the_smallest_policy() -> None:
    loaded = policy()
    assert (loaded.name, loaded.revision, len(loaded.sha256)) == ("test", 3, 64)
    assert set(loaded.principals) == {"a", "b", "c"}
    assert loaded.principals["b"].groups == {"red", "blue"}
    assert loaded.limits == Limits()
    assert len(loaded.roster) == 0
    (context,) = loaded.contexts
    assert context.serializers == context.deserializers == ("msgpack",)
    assert (context.submission, context.operations) == ("none", frozenset())
    assert "test" in repr(loaded)


def test_limits_take_numbers_and_sizes() -> None:
    more = "limits: {max_bytes: 3GiB, max_array: 512MiB, max_depth: 50, max_memory: 640000,"
    more += " max_frames: 64, max_string: 1MiB, max_int: 1KiB, max_calls: 500}\n"
    sizes = {"max_bytes": 3 << 30, "max_array": 512 << 20, "max_string": 1 << 20, "max_int": 1024}
    expected = Limits(max_depth=50, max_memory=5000 << 7, max_frames=64, max_calls=500, **sizes)
    assert policy(more=more).limits == expected


def test_inline_keys_make_the_roster() -> None:
    keys = [PrivateKey.generate().public for _ in range(3)]
    principals = (
        f"principals:\n  a: {{keys: [{keys[0]}, {keys[1]}]}}\n  b: {{keys: ['{keys[2]}']}}\n"
    )
    loaded = policy(principals=principals)
    assert [loaded.roster.principal_of(key) for key in keys] == ["a", "a", "b"]
    assert loaded.principals["a"].keys == tuple(keys[:2])


def test_a_policy_cannot_be_changed() -> None:
    loaded = policy()
    with pytest.raises(AttributeError):
        loaded.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        loaded.principals["mallory"] = loaded.principals["a"]  # type: ignore[index]


# --- what does not ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("name: x\nrevision: 1\n", "config.version"),
        ("safeser: 2\nshadow: x\n", "config.version"),
        ("safeser: '1'\n", "config.version"),
        (HEAD, "config.missing-key"),
        (HEAD + PRINCIPALS, "config.missing-key"),
        ("safeser: 1\nname: x\n" + BODY, "config.missing-key"),
        ("safeser: 1\nname: 7\nrevision: 1\n" + BODY, "config.value"),
        ("safeser: 1\nname: a b\nrevision: 1\n" + BODY, "config.name"),
        *(
            (f"safeser: 1\nname: x\nrevision: {revision}\n{BODY}", "config.value")
            for revision in ("0", "'1'", "[1]", "9223372036854775808")
        ),
    ],
)
def test_what_is_missing_or_of_another_type_at_the_top(text: str, rule: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Policy.parse(text)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    ("contexts", "more", "line"),
    [
        *(
            (CONTEXT, f"{field}\n", 8)
            for field in ("shadow: {}", "warn: x", "enforce: x", "min_peer_revision: 3")
        ),
        *(
            (one(field), "", 9)
            for field in (
                "deny: [a]",
                "warn: x",
                "detached: once",
                "operations: {grant: [basic], deny: [run]}",
            )
        ),
    ],
)
def test_a_field_not_enforced_yet_is_refused_never_ignored(
    contexts: str, more: str, line: int
) -> None:
    error = refused(contexts, more=more)
    assert error.rule == "config.not-supported"
    assert error.where.startswith(f"p.yaml, line {line},")


@pytest.mark.parametrize(
    ("contexts", "rule"),
    [
        (one("deserialisers: [msgpack]"), "config.unknown-key"),
        (one("operations: {grants: [basic]}"), "config.unknown-key"),
        (one("operations: {grant: [basics]}"), "config.operation"),
        (one("operations: {grant: [update_graph]}"), "config.operation"),
        (one("operations: {grant: ['*']}"), "config.operation"),
        (one("deserializers: [msgpack, pickel]"), "config.family"),
        (one("deserializers: [msgpack, cuda]"), "config.family"),
        (one("deserializers: [msgpack, Pickle]"), "config.family"),
        (one("deserializers: [msgpack, error]"), "config.family"),
        (one("deserializers: [dask]"), "config.family"),
        (one("submission: code, serializers: [msgpack, cloudpickle]"), "config.family"),
        (one("kinds: [dat]"), "config.kind"),
        (one("submission: coed"), "config.submission"),
        (one("deserializers: [msgpack, pickle], pickle: {profile: [nump]}"), "config.profile"),
        (one("deserializers: [msgpack, pickle], pickle: {profile: code}"), "config.profile"),
        (one("kinds: [admin, data], operations: {grant: [run]}"), "config.no-effect"),
        (one("kinds: [data], operations: {grant: [basic, restart_workers]}"), "config.no-effect"),
        (one("kinds: [admin], operations: {grant: [gather]}"), "config.no-effect"),
        (one("pickle: {profile: data}"), "config.no-effect"),
        (one("kinds: []"), "config.empty"),
        (one("serializers: []"), "config.empty"),
        (one("kinds: [data, data]"), "config.twice"),
        (one("kinds: data"), "config.value"),
        (one("operations: [basic]"), "config.value"),
        (one("operations: {grant: {basic: 1}}"), "config.value"),
        (one("name: y"), "config.duplicate-key"),
        (one("kinds: [data]", sender="d"), "config.undefined"),
        (one("kinds: [data]", recipient="[a, Unknown]"), "config.undefined"),
        (one("kinds: [data]", sender="any"), "config.undefined"),
        (one("kinds: [data]", sender="'*'"), "config.undefined"),
        (one("kinds: [data]", sender="group:redd"), "config.undefined"),
        (one("kinds: [data]", sender="[]"), "config.empty"),
        (one("kinds: [data]", sender="{a: 1}"), "config.value"),
        (CONTEXT + CONTEXT, "config.duplicate-name"),
        ("- {sender: a, recipient: b}\n", "config.missing-key"),
        ("- a\n", "config.value"),
    ],
)
def test_wrong_contexts(contexts: str, rule: str) -> None:
    error = refused(contexts)
    assert error.rule == rule


@pytest.mark.parametrize(
    ("principals", "rule"),
    [
        ("principals: {unknown: {}, a: {}, b: {}}\n", "config.principal"),
        ("principals: {a: {}, b: {}, any: {}}\n", "config.principal"),
        ("principals: {a: {}, b: {}, 'x y': {}}\n", "config.name"),
        ("principals: {a: {}, b: {}, 'group:x': {}}\n", "config.name"),
        ("principals: {a: {}, b: {key: x}}\n", "config.unknown-key"),
        ("principals: {a: {}, b: {keys: x}}\n", "config.value"),
        ("principals: {a: {}, b: {keys: [x]}}\n", "config.key"),
        ("principals: {a: {}, b: {groups: ['']}}\n", "config.yaml"),
        ("principals: {a: {}, b: {groups: [x y]}}\n", "config.name"),
        ("principals: {a: {}, b: {groups: [x, x]}}\n", "config.twice"),
        ("principals: {a: {}, b: x}\n", "config.value"),
        ("principals: {}\n", "config.value"),
        ("principals: [a, b]\n", "config.value"),
    ],
)
def test_wrong_principals(principals: str, rule: str) -> None:
    error = refused(principals=principals)
    assert error.rule == rule


def test_one_key_speaks_for_one_principal() -> None:
    key = PrivateKey.generate().public
    for principals in (
        f"principals: {{a: {{keys: [{key}]}}, b: {{keys: [{key}]}}}}\n",
        f"principals: {{a: {{keys: [{key}, '{key}']}}, b: {{}}}}\n",
    ):
        error = refused(principals=principals)
        assert error.rule in ("config.duplicate-key-owner", "config.twice")


@pytest.mark.parametrize(
    "limits",
    [
        "max_bytes: 2GB",
        "max_bytes: 0",
        "max_bytes: 9999999GiB",
        "max_bytes: 1.5GiB",
        "max_depth: 100_000",
        "max_depth: 1KiB",
        "max_memory: 0",
        "max_frames: '9'",
        "max_header: 5",
        "max_string: 1",
        "max_int: 1GiB",
        "max_calls: 1",
        "max_dept: 5",
    ],
)
def test_limits_have_floors_and_ceilings(limits: str) -> None:
    refused(more=f"limits: {{{limits}}}\n")
    with refusal(ConfigError, "config.limits"):
        Limits(max_memory=0)


def test_a_limit_of_elements_is_one_of_memory_now() -> None:
    error = refused(more="limits: {max_depth: 50, max_refs: 2_000_000}\n")
    assert error.rule == "config.moved"
    limits = re.search(r"Write '(.*)' for", error.fix)[1]
    assert policy(more=f"limits: {{{limits}}}\n").limits == Limits()


@pytest.mark.parametrize("where", ["of the policy", "of a context"])
@pytest.mark.parametrize("word", ["encrypt", "authenticate"])
def test_a_suite_is_to_be_taken_out(where: str, word: str) -> None:
    if where == "of the policy":
        error = refused(more=f"suite: {word}\n")
    else:
        error = refused(f"- {{name: x, sender: a, recipient: b, suite: {word}}}\n")
    assert (error.rule, error.fix) == (
        "config.moved",
        "Remove the line: every session is encrypted.",
    )
    assert str(error).count("'suite'") == 1


def test_too_many_contexts() -> None:
    contexts = "".join(f"- {{name: x{i}, sender: a, recipient: b}}\n" for i in range(257))
    assert "256" in refused(contexts).message


# --- floors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", ["pickle", "dask"])
@pytest.mark.parametrize("side", ["serializers", "deserializers"])
def test_no_policy_widens_admin(side: str, family: str) -> None:
    error = refused(one(f"kinds: [admin], {side}: [msgpack, {family}]"))
    assert error.rule == "floor.admin"


@pytest.mark.parametrize("family", ["pickle", "cloudpickle"])
@pytest.mark.parametrize("side", ["serializers", "deserializers"])
@pytest.mark.parametrize(("sender", "recipient"), [("[a, unknown]", "b"), ("a", "[b, unknown]")])
def test_no_policy_lets_unknown_have_pickle(
    sender: str, recipient: str, side: str, family: str
) -> None:
    families = "pickle" if family == "pickle" else "pickle, cloudpickle"
    # Without 'submission: code', which is refused of unknown by the same rule.
    fields = f"{side}: [msgpack, {families}]"
    assert refused(one(fields, sender=sender, recipient=recipient)).rule == "floor.unknown"


@pytest.mark.parametrize(
    "fields",
    [
        "submission: code",
        "operations: {grant: [cluster]}",
        "operations: {grant: [files]}, submission: code",
        "operations: {grant: [upload_file]}",
        "operations: {grant: [terminate]}",
    ],
)
def test_no_policy_lets_unknown_submit_or_steer(fields: str) -> None:
    assert refused(one(fields, sender="unknown")).rule == "floor.unknown"


@pytest.mark.parametrize(
    "fields",
    [
        "deserializers: [msgpack, pickle, cloudpickle]",
        "serializers: [msgpack, cloudpickle, pickle]",
        "operations: {grant: [run]}",
        "operations: {grant: [plugins]}",
        "operations: {grant: [upload_file]}",
        "operations: {grant: [files]}",
        "operations: {grant: [actors]}",
    ],
)
def test_where_code_passes_the_file_says_so(fields: str) -> None:
    error = refused(one(fields))
    assert error.rule == "config.code"
    assert "submission: code" in error.fix
    assert policy(one(fields + ", submission: code")).contexts[0].submission == "code"


# --- files ------------------------------------------------------------------------------------


def test_the_same_bytes_are_parsed_once_and_others_anew(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"{HEAD}{PRINCIPALS}contexts:\n{CONTEXT}...\n")
    first = Policy.load(path)
    assert Policy.load(path) is first
    path.write_text("# changed\n" + path.read_text())
    changed = Policy.load(path)
    assert changed.sha256 != first.sha256
    path.write_text("safeser: 1\n...\n")
    with pytest.raises(ConfigError):
        Policy.load(path)


def whole(line_break: str = "\n") -> bytes:
    """Return a policy in which each line can be left out, the last ones without a fault."""
    text = f"{HEAD}{PRINCIPALS}contexts:\n{CONTEXT}limits: {{max_depth: 90}}\n...\n"
    return text.replace("\n", line_break).encode()


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
def test_no_part_of_a_file_from_its_beginning_loads(tmp_path: Path, line_break: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(whole(line_break))
    assert Policy.load(path).limits.max_depth == 90
    for end in range(len(whole(line_break))):
        path.write_bytes(whole(line_break)[:end])
        with pytest.raises(ConfigError) as caught:
            Policy.load(path)
        assert caught.value.rule == "policy.unfinished"
        assert caught.value.where == str(path)
        assert f"'safeser policy check --fix {path}'" in caught.value.fix


@pytest.mark.parametrize(
    "end",
    [
        b"...\n\n",
        b"...\n# the end\n",
        b"...\n...\n",
        b"... \n",
        b"... # whole\n",
        b" ...\n",
        b"....",
    ],
)
def test_the_last_line_is_the_mark_alone_and_once(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(whole().removesuffix(b"...\n") + end)
    with pytest.raises(ConfigError, match="does not end with the line"):
        Policy.load(path)


def test_a_text_needs_no_mark_and_may_have_it() -> None:
    text = whole().decode()
    assert Policy.parse(text).revision == Policy.parse(text.removesuffix("...\n")).revision


def test_a_bare_name_is_never_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text(f"{HEAD}{PRINCIPALS}contexts:\n{CONTEXT}...\n")
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "", ".", "..", "x\x00y", "\ud800"):
        with pytest.raises(ConfigError):
            Policy.load(name)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.yaml"
    os.mkfifo(fifo)
    for path in (tmp_path, fifo, tmp_path / "none.yaml", Path("x\0.yaml"), Path("\ud800.yaml")):
        with pytest.raises(ConfigError) as caught:
            Policy.load(path)
        assert caught.value.rule == "config.file"
        assert str(caught.value).isprintable()


def test_a_file_too_large_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="bytes at most"):
        Policy.load(path)


def test_hostile_labels_and_text_are_shown_escaped() -> None:
    with pytest.raises(ConfigError) as caught:
        Policy.parse("a: \ud800", source="p")
    assert caught.value.rule == "config.encoding"
    with pytest.raises(ConfigError) as caught:
        Policy.parse("x: 1", source="p\x1b[2J\n")
    assert str(caught.value).isprintable()
    with pytest.raises(ConfigError) as caught:
        Policy.parse(f"safeser: 1\n{'k' * 200}: 1\nname: x\n")
    assert len(str(caught.value)) < 250


_FIELDS = (
    "safeser name revision principals contexts limits sender recipient kinds serializers keys"
    " groups deserializers pickle profile operations grant submission shadow max_bytes"
)
_NAMES = "a b group:red unknown data msgpack dask code none basic 2GiB"
_WORDS = st.sampled_from(f"{_FIELDS} {_NAMES}".split(" "))
_VALUES = st.recursive(
    _WORDS | st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_WORDS, _VALUES, max_size=6))
@draws(300)
def test_any_tree_gives_a_policy_or_one_error(value: dict[str, object]) -> None:
    text = json.dumps({"safeser": 1, "name": "x", "revision": 1, **value})
    refusals = []
    try:
        Policy.parse(text, source="p")
    except ConfigError as error:
        refusals.append(error)
    for error in refusals:
        assert error.where.startswith("p, line ")
        assert error.rule.startswith(("config.", "floor."))


_CONTEXT = """safeser: 1
name: t
revision: 1
principals: {a: {}, b: {}}
contexts:
  - name: c
    sender: a
    recipient: b
    serializers: [dask, msgpack, pickle]
"""


@pytest.mark.parametrize(
    ("line", "fix", "mended"),
    [
        ("    operations: [basic]", "Write operations: {grant: [basic]}.", None),
        ("    operations: basic", "Write operations: {grant: basic}.", None),
        ("    pickle: [data, numpy]", "Write pickle: {profile: [data, numpy]}.", None),
        *(
            (f"limits: {{max_bytes: {size}}}", "Write 2GiB.", "limits: {max_bytes: 2GiB}")
            for size in ("2GB", "2 GiB", "2 gigs", "2g", "2_gib")
        ),
        *(
            (f"{' ' * spaces}kinds: [data]", "Indent it by 4", "    kinds: [data]")
            for spaces in (2, 3, 5, 6)
        ),
    ],
)
def test_a_fix_is_what_loads(line: str, fix: str, mended: str | None) -> None:
    with pytest.raises(ConfigError) as caught:
        Policy.parse(f"{_CONTEXT}{line}\n")
    assert fix in caught.value.fix
    mended = mended or f"    {caught.value.fix.removeprefix('Write ').removesuffix('.')}"
    Policy.parse(f"{_CONTEXT}{mended}\n")


@pytest.mark.parametrize("text", ["a: b: c", "  - name: x\n    sender: 'a", "x: [a\ny: b"])
def test_a_line_that_stands_right_is_not_blamed(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Policy.parse(f"{_CONTEXT}{text}\n")
    assert "indented" not in caught.value.message
