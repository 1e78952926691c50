"""Formats and languages that approved tasks may ask moments and periods for.

The one rule: nothing is written into less room than it may need, and nothing is set for all of a
process. pandas hands a period's format to C's ``strftime`` with room for fifty characters more than
the format has, and says nothing of a time zone: what does not fit, and what ``%Z`` names, is memory
that others have used. The name of a day in another language is looked up by setting the language of
the whole process, which then may stay so.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from safeser.pickles.shims.whole import refuse

__all__ = ["check_format", "check_moments"]

#: By how many characters each may grow at most; those of names with room for other languages.
#: ``fFlnNqu`` are pandas' own, which it puts in afterwards.
_GROWTH = {
    **dict.fromkeys("deHImMSyUWVwgfFlnNqu", 0),
    "j": 1,
    "R": 3,
    **dict.fromkeys("DT", 6),
    **dict.fromkeys("abhp", 8),
    **dict.fromkeys("YGC", 9),
    **dict.fromkeys("ABxX", 16),
    "c": 38,
}
_MAX_GROWTH = 49  # and one that ends the text
_DIRECTIVE = re.compile("%(.?)", re.DOTALL)


def check_moments(value: Any, method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse to call *method* of ``.dt`` of *value* if it reaches beyond its values."""
    if method in ("day_name", "month_name"):
        for language in (*args, *kwargs.values()):
            if language is not None:
                raise refuse("the option", "locale")
    if method == "strftime":
        pandas: Any = importlib.import_module("pandas")
        if isinstance(value.dtype, pandas.PeriodDtype):
            for text in (*args, *kwargs.values()):
                _check(text)


def check_format(value: Any, text: Any) -> None:
    """Refuse to write *value*, which is pandas', in a format that is too long for a period."""
    pandas: Any = importlib.import_module("pandas")
    if isinstance(value, pandas.Period):
        _check(text)


def _check(text: Any) -> None:
    if type(text) is not str or not _fits(text):
        raise refuse("the format of periods", text)


def _fits(text: str) -> bool:
    letters = _DIRECTIVE.findall(text)
    return (
        all(letter in _GROWTH for letter in letters)
        and sum(_GROWTH[letter] for letter in letters) <= _MAX_GROWTH
    )
