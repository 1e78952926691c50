"""How large a message of each operation may be follows from its fields."""

from __future__ import annotations

import pytest

from safeser.operations import FLOOR, MANY, OPERATIONS, UNBOUNDED, Channel, Server, lookup
from safeser.operations.ceilings import BULK, BULK_ELEMENTS, FEW, FEW_ELEMENTS, ceilings

FIXED = ("identity", "events", "close", "queue_get", "publish_list")


def of(*fields, code=False, bulk=False, heard=False, values=False):
    return ceilings(fields, code=code, bulk=bulk, heard=heard, values=values)


def row(name, server=Server.SCHEDULER, channel=Channel.RPC):
    found = lookup(server, channel, name)
    assert found is not None
    return found


def test_every_operation_has_ceilings_of_its_own_fields():
    for each in OPERATIONS:
        most, less = each.ceilings
        assert FLOOR <= less.structure <= most.structure
        assert less.elements <= most.elements
        assert less.values <= most.values
        if not each.takes:
            assert most == less == (FLOOR, UNBOUNDED, FLOOR)


@pytest.mark.parametrize("name", FIXED)
def test_small_fields_bound_an_operation_for_everybody(name):
    most, less = row(name).ceilings
    assert most == less
    assert most.structure < 1 << 20


@pytest.mark.parametrize("spelt", ["x:key*", "x:key*?", "x:word->number", "x:any", "x:flag|key*?"])
def test_fields_of_many_elements_depend_on_the_sender(spelt):
    most, less = of("n:number", spelt)
    assert most.structure > MANY
    assert (less.structure - FLOOR - FEW, less.elements) == (16, FEW_ELEMENTS)


def test_each_field_adds_what_it_takes_at_most():
    assert of("a:flag").other.structure == FLOOR + 16
    assert of("a:word?", "b:text").other.structure == FLOOR + (1 << 12) + (1 << 20)
    assert of("a:number|word?").other.structure == FLOOR + (1 << 12)
    # Code in plain bytes has no ceiling for who submits.
    most, less = of("function:any", code=True)
    assert (most.structure, less.structure) == (UNBOUNDED, FLOOR + FEW)
    # Values are bounded where nobody lists them.
    assert of("data:any", values=True).other.values == UNBOUNDED
    assert of("data:any").other.values == FEW
    assert of("data:any").submitter.values == UNBOUNDED
    assert of("name:key").submitter.values == FLOOR


@pytest.mark.parametrize(
    ("server", "channel", "name"),
    [
        (Server.WORKER, Channel.RPC, "get_data"),
        (Server.WORKER, Channel.RPC, "shuffle_receive"),
        (Server.SCHEDULER, Channel.STREAM, "add-keys"),
    ],
)
def test_honest_workers_send_many_keys(server, channel, name):
    most, less = row(name, server, channel).ceilings
    assert most.elements > less.elements == BULK_ELEMENTS
    assert most.structure > less.structure > BULK


def test_what_a_scheduler_tells_its_clients_is_not_cut():
    most, less = row("cancelled-keys", Server.CLIENT, Channel.STREAM).ceilings
    assert most == less
    assert less.structure > MANY


def test_relays_carry_what_they_relay():
    assert row("broadcast").ceilings.submitter.structure == UNBOUNDED
    assert row("broadcast").ceilings.other.structure < 1 << 21
