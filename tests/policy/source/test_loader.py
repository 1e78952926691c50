"""Strict YAML: what a person sees is what is read, within bounds, or it is refused with a place."""

from __future__ import annotations

import contextlib
import hashlib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from safeser.errors import ConfigError
from safeser.policy.source.loader import _MARK, MAX_BYTES, MAX_MARKS, Document, read
from tests.draws import draws


def parse(text: str) -> Document:
    return read(text.encode(), source="p.yaml")


def refused(data: bytes | str) -> ConfigError:
    try:
        document = read(data.encode() if isinstance(data, str) else data, source="p.yaml")
    except ConfigError as error:
        fault = error
    else:
        fault = document.faults[0][1]
    assert fault.where.startswith("p.yaml")
    assert str(fault).isprintable()
    assert len(str(fault)) < 400
    return fault


def test_values_and_places() -> None:
    document = parse("a: 1\nb:\n  - x\n  - {c: 'no', d: \"7\", e: 1_000}\n")
    assert document.value == {"a": 1, "b": ["x", {"c": "no", "d": "7", "e": 1000}]}
    assert str(document.place(("b", 1, "e"))) == "line 4, column 26"
    assert str(document.key_place(("b", 1, "d"))) == "line 4, column 15"
    assert str(document.place(("b", 0, "nowhere"))) == "line 3, column 5"


def test_the_hash_is_of_the_exact_bytes() -> None:
    data = b"a: 1  # one\r\n"
    assert read(data, source="p").sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    ("text", "rule", "place"),
    [
        ("a: &x 1\n", "config.yaml", "line 1, column 4"),
        ("a: 1\nb: *a\n", "config.yaml", "line 2, column 4"),
        ("a: &x {b: 1}\nc: {<<: *x}\n", "config.yaml", "line 1, column 4"),
        ("a: {<<: {b: 1}}\n", "config.ambiguous", "line 1, column 5"),
        ("a: !!python/object/apply:os.system [id]\n", "config.yaml", "line 1, column 4"),
        ("a: !!str 1\n", "config.yaml", "line 1, column 4"),
        ("a: ! 1\n", "config.yaml", "line 1, column 4"),
        ("a: ! [1]\n", "config.yaml", "line 1, column 4"),
        ("a: 1\n---\nb: 1\n", "config.yaml", "line 2, column 1"),
        ("a: 1\nb: 2\na: 1\n", "config.duplicate-key", "line 3, column 1"),
        ("a: {b: 1, 'b': 2}\n", "config.duplicate-key", "line 1, column 11"),
        ("%YAML 1.1\n---\na: 1\n", "config.yaml", "line 1, column 1"),
        ("%TAG ! tag:x,2000:\n---\na: 1\n", "config.yaml", "line 1, column 1"),
        ("a: 1\n...\n%FOO\n---\nb: 1\n", "config.yaml", "line 3, column 1"),
        ("? [a]\n: 1\n", "config.yaml", "line 1, column 3"),
        ("? {a: 1}\n: 1\n", "config.yaml", "line 1, column 3"),
        ("1: a\n", "config.yaml", "line 1, column 1"),
        ("a: {1: a}\n", "config.yaml", "line 1, column 5"),
        ("a:\n\n# nothing\nb: 1", "config.yaml", "line 1, column 1"),
        ("- a\n-\n", "config.yaml", "line 2, column 2"),
        ("a: ''\n", "config.yaml", "line 1, column 4"),
        ("a: [x,\n", "config.yaml", ""),
        # What one parser of YAML reads and another refuses.
        ("a: {b:[c]}\n", "config.yaml", "line 1, column 7"),
        ("a: [b:{c: d}]\n", "config.yaml", "line 1, column 7"),
        ("a: {b: c?}\n", "config.yaml", "line 1, column 9"),
        ("a: 1\n...\n...\n", "config.yaml", "line 3, column 1"),
        ("a: b: c\n", "config.yaml", "line 1, column 5"),
        ("- a\n", "config.yaml", "line 1, column 1"),
        ("just text\n", "config.yaml", "line 1, column 1"),
        ("", "config.yaml", "line 1, column 1"),
        ("# nothing\n", "config.yaml", "line 1, column 1"),
    ],
)
def test_refused_with_its_place(text: str, rule: str, place: str) -> None:
    error = refused(text)
    assert error.rule == rule
    assert place in error.where


@pytest.mark.parametrize("text", ['a: "\\é"\n', "a: \\\n@: 1\n", 'a: "\\xzz"\n'])
def test_what_a_parser_says_of_it_is_short_and_readable(text: str) -> None:
    message = str(refused(text))
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 250


_NOT_TEXT = (
    "no No NO yes on off true False null ~ y N << = .inf -.Inf .nan 1e3 1E+3 1.5 -1 +1 0x1F 0o17"
    " 017 0b11 1_ 1__0 .5 1. 190:20:30 12:30 2026-11-21 2026-11-21T10:00:00Z"
)


@pytest.mark.parametrize("text", _NOT_TEXT.split())
def test_what_some_reader_takes_for_something_else_needs_quotes(text: str) -> None:
    assert refused(f"a: {text}\n").rule == "config.ambiguous"
    assert refused(f"a: {{{text}: 1}}\n").rule in ("config.ambiguous", "config.yaml")
    assert parse(f"a: '{text}'\n").value == {"a": text}


def test_a_number_is_a_number_and_a_quoted_one_is_text() -> None:
    assert parse("a: [0, 7, 1_000_000, '7']\n").value == {"a": [0, 7, 1_000_000, "7"]}


def test_huge_numbers_cost_nothing() -> None:
    assert refused("a: " + "9" * 200 + "\n").rule == "config.number"
    assert "no value" in refused("a: " + "9" * 900_000).message


@pytest.mark.parametrize(
    ("text", "name"),
    [
        # A line break to YAML, none to most editors: the key after it looks like a comment.
        ("# harmless\u2028a: 1\n", "U+2028"),
        ("# harmless\u0085a: 1\n", "U+0085"),
        ("# harmless\ra: 1\n", "U+000D"),
        ("a: 1 # \u202e1 :b\n", "U+202E"),
        ("a: x\u200b\n", "U+200B"),
        ("\ufeffa: 1\n", "U+FEFF"),
        ("a: x\x00\n", "U+0000"),
        ("a:\tx\n", "U+0009"),
        ("a: \ue000\n", "U+E000"),
    ],
)
def test_what_an_editor_would_not_show_is_refused(text: str, name: str) -> None:
    error = refused(text)
    assert error.rule == "config.characters"
    assert name in error.message


@pytest.mark.parametrize("name", ["\u0430lice", "alice\u0301", "\uff41lice", "al\u0131ce"])
def test_lookalike_letters_are_refused_outside_comments(name: str) -> None:
    assert refused(f"a: {name}\n").rule == "config.characters"
    assert refused(f"a: {{{name}: 1}}\n").rule == "config.characters"
    assert parse(f"a: 1  # {name.replace(chr(0x301), 'é')}\n").value == {"a": 1}


@pytest.mark.parametrize(
    "escape", [r"\ud800", r"\x00", r"\u202e", r"\n", r"\UFFFFFFFF", r"\U00110000"]
)
def test_escapes_smuggle_nothing(escape: str) -> None:
    refused(f'a: "x{escape}"\n')


@pytest.mark.parametrize(
    "data", [b"a: \xff\n", "a: é\n".encode("latin-1"), "a: 1\n".encode("utf-16")]
)
def test_other_encodings_are_refused(data: bytes) -> None:
    assert refused(data).rule in ("config.encoding", "config.characters")


def test_size_is_bounded_before_anything_is_read() -> None:
    assert refused(b"\xff" * (MAX_BYTES + 1)).rule == "config.size"


_PIECES = "a b - { } [ ] , &x *x ! !!int | > ' \" \\ % --- ... ? # 1 ~ << @ ` \\U %TAG = 0x"
_SPACES = ("\n", "  ", ": ", "- ", "\t", "\r", "\u2028", "%YAML 1.3\n", "\u00e9", "F" * 8)
_TEXTS = st.lists(st.sampled_from((*_PIECES.split(" "), *_SPACES)), max_size=25).map("".join)

_DEEP, _MANY, _LONG = "nest this deep", f"{MAX_MARKS} line ends and marks", "longer than 256"


@pytest.mark.unmeasured
@pytest.mark.parametrize(
    ("text", "bound"),
    [
        # Unbounded nesting took the scanner 37 seconds.
        ("a: " + "[" * 500_000, _MANY),
        ("a: " + "[" * 29_000, _DEEP),
        ("a: " + "{b: " * 14_000, _DEEP),
        ("- " * 29_000, _DEEP),
        ("\n".join(" " * i + "a:" for i in range(1_000)), _DEEP),
        ("a: [" + "1," * 60_000 + "]", _MANY),
        ("a:\n" + "- x\n" * 60_000, _MANY),
        ("a: " + "x" * 1_000_000, _LONG),
        ("a: " + "x\n " * 29_000, _LONG),
        ("a: |\n" + " x\n" * 29_000, _LONG),
        ("".join(f"k{i}: &a{i} x\n" for i in range(10_000)), "anchors"),
        ("a: {" + "b: c, " * 20_000 + "}", _MANY),
        ("a: {" + '"b":c,' * 20_000 + "}", _MANY),
        ("#\n" * 40_000, _MANY),
        ("a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nd: [*c,*c]\n", "anchors"),
        ("#" * 1_000_000, "a policy is a mapping"),
    ],
    ids=lambda text: text[:12].strip() or "x",
)
def test_bombs_meet_a_bound(text: str, bound: str) -> None:
    assert bound in refused(text).message


def principals(count: int) -> str:
    return "principals:\n" + "".join(f"  p{i}: {{}}\n" for i in range(count))


def test_too_many_values_are_refused_before_any_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(*_: object) -> object:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(yaml, "parse", parse)
    error = refused(principals(30_000))
    assert error.rule == "config.size"
    assert "line 10001" in error.where
    assert "groups" in error.fix


def test_as_many_values_as_the_bound_lets_through_are_read() -> None:
    most = (MAX_MARKS - 2) // 3
    assert len(parse(principals(most)).value["principals"]) == most
    assert refused(principals(most + 1)).rule == "config.size"


@given(_TEXTS)
@draws(400)
def test_no_text_has_many_more_values_than_marks(text: str) -> None:
    try:
        events = list(yaml.parse(text))
    except (yaml.YAMLError, ValueError, OverflowError):
        return
    values = sum(isinstance(event, yaml.NodeEvent) for event in events)
    assert 2 * values <= 3 * len(_MARK.findall(text)) + 8 * text.count("---") + 8


@given(_TEXTS)
@draws(400)
def test_any_text_gives_a_document_or_one_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(parse(text).value, dict)


@given(st.binary(max_size=60))
@draws(200)
def test_any_bytes_give_a_document_or_one_error(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        read(data, source="p.yaml")
