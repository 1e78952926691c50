"""A wrong result in alice's workload raises."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from examples.demo.workload import Unexpected, parts


class Wrong:
    """A client whose results are all the same text."""

    def submit(self, *_, **__):
        return SimpleNamespace(result=lambda _: "wrong")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("submit, map, gather with lambdas", "20 . 22 is not 42"),
        ("a task that fails", "the task that must fail succeeded"),
    ],
)
def test_a_wrong_result_raises(name, why):
    todo = dict(parts(Wrong(), progress=lambda *_: None))
    with pytest.raises(Unexpected, match=why):
        todo[name]()
