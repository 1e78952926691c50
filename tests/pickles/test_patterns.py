"""Patterns of approved tasks: none is looked for that backtracking could follow for ever."""

from __future__ import annotations

import operator
import re
import signal
from collections import UserDict
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
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
        *(r"(?i)error|warn(ing)?", r"\((.*?)\)", r"[^\w\s]", r"(\w+\s)+end", r"\$\d+", "é+à"),
        *(r"^(?:[^,]*,){3}([^,]*)", r"(?:a|b)*c"),
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
        *(r"(?:\dx|[\u00b2-\u0a6a]x|1x)*z", r"(?a:(?:\Wx|éx))*z"),
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
        ("a*" + r"\B" * 495 + "x", 4096, True),
        ("a*b?c?d?e?f?g?h?i?j?k?l?z", 8192, True),
        ("(" * 90 + "a" + ")" * 90 + "*b", 4096, True),
        ("(?:" + "(" * 90 + "a" + ")" * 90 + "b?)*c", 4096, True),
        (f"a*(?:{_CHINESE[:-1]})", 8192, True),
        ("(x)?a*(?:b|" + "b?" * 100 + "c)", 8192, True),
        (f"[^{_BEYOND}]*x", 8192, True),
        (f"[{_BEYOND[0]}-{_BEYOND[1]}{_BEYOND[2:900]}a]*x", 8192, True),
    ],
)
def test_bypass_what_whoever_goes_back_looks_at_again_is_counted(pattern, longest, search):
    assert _steps(pattern, 0, longest, search=search, whole=False) > _MAX_STEPS


@pytest.mark.parametrize(
    "pattern",
    [
        *("a*(?=a*(?=a*b))", "(?!a)b", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P<x>a)(?P=x)", "(?>a+)b"),
        *("(a)?(?(1)b|c)", "a*+b", "(?:a++)b", "(?:(?:a|(?>b))c)*", "(?:x|(?=a))+"),
    ],
)
def test_what_depends_on_more_than_what_stands_beside_it_is_refused(pattern):
    for method in ("contains", "fullmatch", "match"):
        with pytest.raises(PolicyDenied, match="looks ahead or behind"):
            called(method, pattern)


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
    st.sampled_from(["a", "b", ".", r"\w", r"\s", "[^a]", "é", r"\b", r"\B", "^", "$"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "*?", "{1,3}", "{2,}"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
    ),
    max_leaves=8,
)


class Backtracking:
    """A matcher that tries what ``re`` tries, in its order and without its short cuts, and counts.

    It is the textbook's, in which each part is told what comes then.
    """

    def __init__(self, pattern: str, flags: int, text: str) -> None:
        self._items = parser.parse(pattern, flags)
        self._text = text
        self.steps = 0

    def match(self, start: int, *, advance: bool = False, whole: bool = False) -> int | None:
        """Return where what matches at *start* ends.

        :param advance: it takes something.
        :param whole: it takes all that there is.
        """
        ends: list[int] = []

        def done(at: int) -> bool:
            if (advance and at == start) or (whole and at < len(self._text)):
                return False
            ends.append(at)
            return True

        return ends[0] if self._sequence(list(self._items), start, done) else None

    def find_all(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        start = 0
        while start <= len(self._text):
            # Where nothing was taken, what takes something is looked for at the same place.
            end = self.match(start, advance=bool(found) and found[-1] == (start, start))
            if end is None:
                start += 1
            else:
                found.append((start, end))
                start = end
        return found

    def _sequence(self, items: list[Any], at: int, then: Any) -> bool:
        if not items:
            return bool(then(at))
        return self._item(items[0], at, lambda end: self._sequence(items[1:], end, then))

    def _item(self, item: Any, at: int, then: Any) -> bool:
        code, value = item
        self.steps += 1
        if code is codes.SUBPATTERN:
            return self._sequence(list(value[3]), at, then)
        if code is codes.BRANCH:
            return any(self._sequence(list(branch), at, then) for branch in value[1])
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            return self._turn(code is codes.MAX_REPEAT, value, 0, at, then)
        one = parser.SubPattern(self._items.state, [item])  # a character or a place
        met = compiler.compile(one, self._items.state.flags).match(self._text, at)
        return met is not None and bool(then(met.end()))

    def _turn(
        self, greedy: bool, value: Any, count: int, at: int, then: Any, before: int | None = None
    ) -> bool:
        """Try one more turn, or what comes then; *before* is where the last optional one began."""
        least, most, body = value

        def more() -> bool:
            if count >= most or (count >= least and at == before):
                return False  # the last turn took nothing: another one would take nothing, too
            began = at if count >= least else before
            return self._sequence(
                list(body),
                at,
                lambda end: self._turn(greedy, value, count + 1, end, then, began),
            )

        if count < least:
            return more()
        return (more() or then(at)) if greedy else (then(at) or more())


def counted(
    pattern: str, flags: int, text: str, *, search: bool, whole: bool
) -> tuple[list[Any], int]:
    """Return what is found, and in how many steps."""
    walked = Backtracking(pattern, flags, text)
    if search:
        return walked.find_all(), walked.steps
    end = walked.match(0, whole=whole)
    return [] if end is None else [(0, end)], walked.steps


FLAGS = st.sampled_from([0, re.MULTILINE, re.IGNORECASE | re.DOTALL, re.ASCII | re.MULTILINE])


@settings(max_examples=150)
@given(PARTS, FLAGS, st.text(alphabet="aaBb! é\n", max_size=16))
def test_no_more_steps_are_taken_than_were_counted(pattern, flags, text):
    found = {
        (True, False): [m.span() for m in re.finditer(pattern, text, flags)],
        (False, False): [m.span() for m in [re.match(pattern, text, flags)] if m],
        (False, True): [m.span() for m in [re.fullmatch(pattern, text, flags)] if m],
    }
    for (search, whole), expected in found.items():
        most = _steps(pattern, int(flags), 16, search=search, whole=whole)
        if most < 20_000:
            spans, steps = counted(pattern, int(flags), text, search=search, whole=whole)
            assert spans == expected
            assert steps <= most


def test_methods_of_other_accessors_take_no_patterns():
    days = pd.Series(pd.date_range("2000", periods=2))
    assert calls.accessor_called(days, "dt", "floor", ("D",), {}).tolist() == list(days)
    assert operator.attrgetter("str")(TEXTS) is not None
