"""Patterns of approved tasks: none is looked for that backtracking could follow for ever."""

from __future__ import annotations

import operator
import re
import signal
from collections import UserDict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from safeser.errors import PolicyDenied
from safeser.pickles.shims import calls, patterns
from safeser.pickles.shims.patterns import _MAX_STEPS, _steps, check_texts

pd = pytest.importorskip("pandas")
pytest.importorskip("dask.dataframe")

TEXTS = pd.Series(["a" * 40, "key=1; b", None])
ENDLESS = "(a*)*b"


def _late(*_: object) -> None:
    raise TimeoutError


@pytest.fixture(autouse=True)
def _ends():
    # What is not refused would go on for ever.
    before = signal.signal(signal.SIGALRM, _late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def called(method: str, *args: Any, texts: Any = TEXTS, **kwargs: Any) -> Any:
    return calls.accessor_called(texts, "str", method, args, kwargs)


def replaced(frame: Any, *args: Any, **kwargs: Any) -> Any:
    return calls.Method("replace")(frame, *args, **kwargs)


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"(\d+)", "foo|bar", r"^\s+|\s+$", r"\s*,\s*", r"[A-Z]\w+", r"(\w+)@(\w+)\.com", "", "_"),
        *(r"(?P<y>\d{4})-(?P<m>\d{2})", r"\b\w{4}\b", "<[^>]+>", "a.*b", "a.*b.*c", ".*", r"\s+"),
        *(r"[\w.+-]+@[\w-]+\.[\w.-]+", r"https?://[^\s/$.?#].[^\s]*", r"^(\d{1,3}\.){3}\d{1,3}$"),
        *(r"(?i)error|warn(ing)?", r"\((.*?)\)", r"[^\w\s]", r"(\w+\s)+end", r"(?<=\$)\d+", "é+à"),
        *(
            r"^(?:[^,]*,){3}([^,]*)",
            r"(?:a|b)*c",
            r"(a)?(?(1)b|c)",
            r"(a)\1",
            "(?>a+)b",
            "(?:ab)*+c",
        ),
        *(r"(?a:\w+)\W", r"(?s).*\n", r"(?:a?b)*", "[^a-c]*b", "[à-ü]+ ", r"(?m)^a+$", r"\Aa+\Z"),
    ],
)
def test_what_people_look_for_is_cheap(pattern):
    assert _steps(pattern, 0, 128, search=True, whole=False) <= _MAX_STEPS
    assert _steps(pattern, 0, 128, search=False, whole=True) <= _MAX_STEPS


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            ENDLESS,
            "(a+)+$",
            "(a|a)*b",
            "(a|aa)+$",
            r"(\w+\s?)*$",
            "(.*)*x",
            "(?:.*,)*x",
            r"(\d+)*$",
        ),
        *("(?:a?){40}a{40}", "^(([a-z])+.)+[A-Z]([a-z])+$", "(?:a*?)*?b", "(x+x+)+y", "((a)*)*b"),
        *(
            "(?:a{1,2})*b",
            "(?i)(?:kx|Kx)*z",
            "(?i)(?:\u017fx|sx)*z",
        ),
        *(
            r"(?:\dx|[\u00b2-\u0a6a]x|1x)*z",
            r"(?a:(?:\Wx|éx))*z",
            r"(?:a|(b)|(?(1)a|a))*z",
            r"(?:(a)|\1)*z",
        ),
        *(
            r"(?:\s |\u2003 )*z",
            r"(?:.\n|.\n)*z",
            r"(?s)(?:.x|\nx)*z",
            "(?:[^b]x|ax)*z",
            "(?:^|a|ab|b)*z",
        ),
        *("(" * 300 + "a" + ")*" * 300, ".*" * 9 + "x"),
    ],
)
def test_what_can_go_on_for_ever_is_not(pattern):
    assert _steps(pattern, 0, 128, search=True, whole=False) > _MAX_STEPS


#: What costs whoever goes back more than a look at one character. Each took minutes before.
_CHINESE = "".join(chr(0x4E00 + at) + "q|" for at in range(320))
_BEYOND = "".join(chr(0x10000 + 2 * at) for at in range(980))


@pytest.mark.parametrize(
    ("pattern", "longest", "search"),
    [
        ("a*(?=a*(?=a*b))", 512, True),
        ("a*(?=a*b)", 4096, True),
        ("a*(?!a*b)x", 4096, True),
        ("a*(?<=a)(?=a?(?=a*b))", 4096, True),
        ("a*" + r"\B" * 495 + "x", 4096, True),
        ("a*(?>b?c?d?e?f?g?h?i?j?k?l?)z", 8192, True),
        ("(" * 90 + "a" + ")" * 90 + "*b", 4096, True),
        ("(?:" + "(" * 90 + "a" + ")" * 90 + "b?)*c", 4096, True),
        (f"a*(?:{_CHINESE[:-1]})", 8192, True),
        (r"a*(?:(b)\1|" + _CHINESE[:-1] + ")", 8192, True),
        ("(x)?a*(?(1)b|" + "b?" * 100 + "c)", 8192, True),
        (f"[^{_BEYOND}]*x", 8192, True),
        (f"[{_BEYOND[0]}-{_BEYOND[1]}{_BEYOND[2:900]}a]*x", 8192, True),
        ("(?:a(?=.*))*", 1_000_000, False),
        (r"\A(?:a(?=.*))*", 1_000_000, True),
    ],
)
def test_bypass_what_whoever_goes_back_looks_at_again_is_counted(pattern, longest, search):
    assert _steps(pattern, 0, longest, search=search, whole=False) > _MAX_STEPS


def test_patterns_in_patterns_are_looked_at_once():
    # Twice as long for each of them before: 2 to the power of 100 in all.
    assert _steps("(?:(?=" * 100 + "a" + "))*" * 100, 0, 64, search=True, whole=False) > _MAX_STEPS


@pytest.mark.parametrize(
    "call",
    [
        lambda: called("contains", ENDLESS),
        lambda: called("contains", pat=re.compile(ENDLESS)),
        lambda: called("count", ENDLESS),
        lambda: called("extract", f"({ENDLESS})"),
        lambda: called("extractall", f"({ENDLESS})", flags=re.IGNORECASE),
        lambda: called("findall", ENDLESS),
        lambda: called("fullmatch", ENDLESS),
        lambda: called("match", ENDLESS, case=False),
        lambda: called("replace", ENDLESS, "x", regex=True),
        lambda: called("replace", {"a": "b", ENDLESS: "x"}, regex=True),
        lambda: called("replace", re.compile(ENDLESS), "x"),
        lambda: called("split", ENDLESS),
        lambda: called("split", re.compile(ENDLESS)),
        lambda: called("contains", ENDLESS, texts=pd.Index(["a" * 40])),
        lambda: called("contains", "a" * 1001),
        lambda: called("contains", b"a"),
        lambda: called("contains", ".*.*b", texts=pd.Series(["a" * 10_000])),
        lambda: replaced(TEXTS, ENDLESS, "x", regex=True),
        lambda: replaced(TEXTS, regex=ENDLESS, value="x"),
        lambda: replaced(TEXTS, [re.compile(ENDLESS)], "x"),
        lambda: replaced(TEXTS.to_frame("c"), {"c": {ENDLESS: "x"}}, regex=True),
        lambda: replaced(TEXTS.to_frame("c"), pd.Series(["x"], index=[ENDLESS]), regex=True),
        lambda: replaced(TEXTS.to_frame("c"), pd.Series([re.compile(ENDLESS)]), "x"),
        lambda: replaced(TEXTS, UserDict({ENDLESS: "x"}), regex=True),
        lambda: replaced(TEXTS, iter([re.compile(ENDLESS)]), "x"),
    ],
)
def test_bypass_a_pattern_that_kills_every_worker(call):
    with pytest.raises(PolicyDenied):
        call()


@pytest.mark.parametrize(
    ("call", "result"),
    [
        (lambda: called("contains", r"key=[^;]*;").tolist()[:2], [False, True]),
        (lambda: called("contains", ENDLESS, regex=False).tolist()[:2], [False, False]),
        (lambda: called("replace", ENDLESS, "x").tolist()[1], "key=1; b"),
        (lambda: called("replace", r"\W+", "-", regex=True).tolist()[1], "key-1-b"),
        (lambda: called("split", ";").tolist()[1], ["key=1", " b"]),
        (lambda: called("split").tolist()[1], ["key=1;", "b"]),
        (lambda: called("split", "; ", regex=False).tolist()[1], ["key=1", "b"]),
        (lambda: called("upper").tolist()[1], "KEY=1; B"),
        (lambda: called("fullmatch", "KEY.*", case=False).tolist()[:2], [False, True]),
        (lambda: called("contains", "(", texts=TEXTS.iloc[2:], regex=False).tolist(), [False]),
        (lambda: replaced(TEXTS, "key=1; b", "x").tolist()[1], "x"),
        (lambda: replaced(TEXTS, {"key=1; b": "x"}).tolist()[1], "x"),
        (lambda: replaced(TEXTS, r"\d", "x", regex=True).tolist()[1], "key=x; b"),
        (lambda: replaced(pd.DataFrame({"a": [1], "b": ["b"]}), "b", "c", regex=True).b[0], "c"),
        (lambda: replaced(pd.DataFrame(), "b", "c", regex=True).shape, (0, 0)),
        (lambda: replaced(pd.Series([1, 2]), 1, 3).tolist(), [3, 2]),
    ],
)
def test_what_is_cheap_is_looked_for(call, result):
    assert call() == result


@pytest.mark.parametrize("texts", [TEXTS, TEXTS.astype(object), pd.Index(TEXTS)])
def test_texts_are_looked_through_in_parts(texts, monkeypatch):
    whole = called("findall", "[a-z]+", texts=texts)
    monkeypatch.setattr(patterns, "_MAX_STEPS", 600)
    parts = called("findall", "[a-z]+", texts=texts)
    assert type(parts) is type(whole)
    assert parts.equals(whole)
    assert parts.dtype == whole.dtype
    assert check_texts(texts, "findall", ("[a-z]+",), {}) == 2
    assert check_texts(texts, "contains", ("[a-z]+",), {}) == 0


def test_what_is_no_pattern_is_left_to_pandas():
    with pytest.raises(re.error):
        called("findall", "(")


PARTS = st.recursive(
    st.sampled_from(["a", "b", ".", r"\w", r"\s", "[^a]", "é", r"\b", "$"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{1,3}", "{2,}"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
    ),
    max_leaves=8,
)


@settings(max_examples=150)
@given(PARTS)
def test_what_is_said_to_be_cheap_ends(pattern):
    if _steps(pattern, 0, 64, search=True, whole=False) < 1_000_000:
        for text in ("a" * 40 + "!", "ab" * 20, "a " * 20 + "é", "aab" * 13 + "\n"):
            re.findall(pattern, text)


def test_methods_of_other_accessors_take_no_patterns():
    days = pd.Series(pd.date_range("2000", periods=2))
    assert calls.accessor_called(days, "dt", "floor", ("D",), {}).tolist() == list(days)
    assert operator.attrgetter("str")(TEXTS) is not None
