"""Sentences about values that callers make and peers claim."""

from __future__ import annotations

from safeser.envelope.claims import Claims
from safeser.envelope.handshake import Handshake
from safeser.values import Context, Limits
from tests.sentences.sentence import Sentence


def claims(policy: object = "p", revision: object = 1, sha256: object = "0" * 64) -> Claims:
    return Claims("a", None, policy, revision, sha256)  # type: ignore[arg-type]


def proposing(**more: object) -> Handshake:
    given = {"identity": None, "principal_of": None, "required": None, "policy": ("p", 1, "")}
    return Handshake(**given, **more)  # type: ignore[arg-type]


ROWS = [
    Sentence(
        "config.limits", lambda: Limits(max_refs=0), "limit max_refs must be a positive integer"
    ),
    Sentence(
        "config.same-host",
        lambda: Context("a", "b", same_host=1),
        "same_host is True, False or None",
    ),
    Sentence(
        "config.policy-name",
        lambda: claims("-x"),
        "a policy's name must be 1 to 64 letters, digits, '_', '-', '.' or '@',"
        " and start with a letter or digit",
    ),
    Sentence("config.revision", lambda: claims(revision="1"), "a revision must be an integer"),
    Sentence(
        "config.hash",
        lambda: claims(sha256="x"),
        "a policy's hash must be 64 lower-case hexadecimal digits",
    ),
    Sentence(
        "config.handshake",
        lambda: proposing(initiator=True),
        "an initiator proposes a suite, and a responder takes it",
    ),
]
