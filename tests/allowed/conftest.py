"""The pickle assembler of the tests of pickles."""

from __future__ import annotations

import pytest

from tests.pickles.conftest import Asm


@pytest.fixture
def asm() -> type[Asm]:
    return Asm
