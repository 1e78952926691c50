"""Nothing that is in the inventory of Dask's protocol is without an attack."""

from __future__ import annotations

from pathlib import Path

from tests.dask.live import inventory
from tests.dask.live.client_table import CLIENT_ROWS
from tests.dask.live.payloads import Evil, filled
from tests.dask.live.table import ROWS


def test_every_row_of_the_tables_is_attacked():
    assert len(inventory.SERVERS) == 50
    assert len(inventory.CLIENTS) == 33
    assert len((*inventory.OTHERS, *inventory.REGISTRATIONS, inventory.POISONING)) == 13
    assert len(inventory.DOWNGRADE) == 2
    servers = [row.name for row in ROWS if not row.name.startswith("more.")]
    assert sorted(servers) == sorted((*inventory.SERVERS, *inventory.OTHERS))
    clients = [row.name for row in CLIENT_ROWS if not row.name.startswith("more.")]
    assert sorted(clients) == sorted(inventory.CLIENTS)


def test_every_sink_is_taken_by_an_attack_that_there_is():
    here = {path.stem for path in Path(__file__).parent.glob("test_*.py")}
    rows = {row.name for row in (*ROWS, *CLIENT_ROWS)}
    known = here | rows | set(inventory.REGISTRATIONS)
    for sink, attacks in (*inventory.SINKS.items(), *inventory.DOWNGRADE.items()):
        assert attacks, sink
        assert set(attacks) <= known, sink


def test_each_attack_but_those_by_authority_carries_a_payload():
    for row in ROWS:
        places = []
        filled(row.say, places.append)
        carries = any(isinstance(place, Evil) for place in places)
        by_name = row.authority or row.effect != "ran" or "hostile" in repr(places)
        assert carries or by_name, row.name
