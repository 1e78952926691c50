"""Sentences of commands."""

from safeser.confinement.launch import _run_script
from tests.sentences.sentence import Sentence

ROWS = [
    Sentence(
        "confined.command",
        lambda: _run_script("no-such-command", ()),
        "no installed package has a command 'no-such-command'",
    ),
]
