"""The catalogue of sentences: what safeser says, word for word, in one place.

The one rule: other tests assert an error's rule. A sentence that changes changes here alone.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from safeser.errors import SafeserError

FOLDER = Path(__file__).parent
ROWS = [
    row
    for path in sorted(FOLDER.glob("rows_*.py"))
    for row in import_module(f"tests.sentences.{path.stem}").ROWS
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_the_error_says(row):
    with pytest.raises(SafeserError) as caught:
        row.provoke()
    assert caught.value.rule == row.rule
    assert row.text in (str(caught.value), caught.value.message)
