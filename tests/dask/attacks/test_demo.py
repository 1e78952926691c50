"""The demo: each of its attacks is a row of the table, and is refused there by the same rule.

The one rule: the message that the demo sends is the row's, byte for byte; its builders make both.
"""

from __future__ import annotations

import pytest

from examples.demo.attacks import ATTACKS
from tests.dask.attacks import rows_of_the_demo

ROWS = {row.name: row for row in rows_of_the_demo.ROWS}


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_each_attack_of_the_demo_is_a_row(attack):
    forms = [ROWS.pop(name) for name in list(ROWS) if name.rpartition("-")[0] == attack.name]
    if not forms:
        forms = [ROWS.pop(attack.name)]
    else:
        assert len(forms) == attack.forms
    who = {"stranger": "unknown", "impostor": "unknown"}.get(attack.attacker, attack.attacker)
    # The scheduler is the first that hears what a worker says to a client.
    at = "scheduler" if attack.recipient == "alice" else attack.recipient
    for row in forms:
        assert (row.sender, row.recipient, bool(row.rule)) == (who, at, True)
