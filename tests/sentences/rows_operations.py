"""Sentences about operations that nobody granted."""

from safeser.values import Kind
from tests.conftest import Doors
from tests.sentences.sentence import Sentence


def _restart() -> None:
    _, link = Doors().links("bob", "scheduler", "demo")
    link.permit_named(link.inbound(Kind.CONTROL, "restart"), where="op")


ROWS = [
    Sentence(
        "operation.not-granted",
        _restart,
        "bob -> scheduler control restart: operation restart is not granted in context"
        " 'guests-look'",
    ),
]
