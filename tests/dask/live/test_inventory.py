"""Nothing that is in the inventory of Dask's protocol is without an attack."""

from __future__ import annotations

from pathlib import Path

from tests.dask.live import inventory
from tests.dask.live.client_table import CLIENT_ROWS
from tests.dask.live.payloads import Evil, filled
from tests.dask.live.table import ROWS
from tests.dask.live.test_shuffles_and_plugins import ASKED


def test_every_row_of_the_tables_is_attacked():
    assert len(inventory.SERVERS) == 50
    assert len(inventory.CLIENTS) == 33
    assert len((*inventory.OTHERS, *inventory.REGISTRATIONS, inventory.POISONING)) == 13
    assert len(inventory.DOWNGRADE) == 2
    servers = [row.name for row in ROWS if not row.name.startswith("more.")]
    assert sorted(servers) == sorted((*inventory.SERVERS, *inventory.OTHERS))
    clients = [row.name for row in CLIENT_ROWS if not row.name.startswith("more.")]
    assert sorted(clients) == sorted(inventory.CLIENTS)


def test_every_sink_is_taken_by_an_attack_that_there_is_in_each_role():
    here = Path(__file__).parent
    rows = {row.name for row in (*ROWS, *CLIENT_ROWS)} | set(inventory.REGISTRATIONS)
    wanted = {(sink, role) for sink, roles in inventory.ROLES.items() for role in roles.split()}
    assert set(inventory.SINKS) | set(inventory.NOT_LIVE) == wanted
    assert not set(inventory.SINKS) & set(inventory.NOT_LIVE)
    for where, attacks in (*inventory.SINKS.items(), *inventory.DOWNGRADE.items()):
        assert attacks, where
        for attack in attacks:
            file, _, test = attack.partition("::")
            if attack not in rows:
                assert f"def {test}(" in (here / file).read_text(), (where, attack)


def test_rows_are_attacked_in_the_role_that_they_stand_for():
    targets = {row.name: row.by or row.target for row in ROWS}
    targets |= {row.name: "client" for row in CLIENT_ROWS}
    for (sink, role), attacks in inventory.SINKS.items():
        for attack in attacks:
            assert targets.get(attack, role) == role, (sink, role, attack)


def test_what_does_not_run_on_stock_dask_is_named():
    found = {row.name for row in (*ROWS, *CLIENT_ROWS) if not row.runs}
    found |= {name for name, row in ASKED.items() if not row.runs}
    assert found == set(inventory.NOT_ON_STOCK)


def test_each_attack_but_those_by_authority_carries_a_payload():
    for row in ROWS:
        places = []
        filled(row.say, places.append)
        carries = any(isinstance(place, Evil) for place in places)
        by_name = row.authority or row.effect != "ran" or "hostile" in repr(places)
        assert carries or by_name, row.name
