"""What the demo says of results that are not right."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from safeser.demo.work import Unexpected, steps


class Wrong:
    """A client whose results are all the same text."""

    def submit(self, *_, **__):
        return SimpleNamespace(result=lambda _: "wrong")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("submit, map, gather with lambdas", "20 . 22 is no 42"),
        ("a task that fails", "the task that must fail did not"),
    ],
)
def test_a_result_that_is_not_right_is_said_to_be(name, why):
    todo = dict(steps(Wrong(), progress=lambda *_: None))
    with pytest.raises(Unexpected, match=why):
        todo[name]()
