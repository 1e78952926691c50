"""Reviewed functions by themselves: what a draft is for, and what they refuse without a reader.

The reader refuses a second BUILD already; each function that gives an object its state does so too.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from safeser.errors import PayloadError
from safeser.pickles import DATA_PROFILES, Profile, loads
from safeser.pickles.shims import Site, shim
from safeser.values import Limits

STATES = sorted(
    entry.state
    for entry in Profile.named("data", "numpy").entries.values()
    if entry.state
    and entry.state
    not in (
        # These are made whole, and their state is added to what they are.
        "holders.namespace_state",
        "holders.mail_policy_state",
        "records.iterator_at",
        "numpy_random.generator_state",
    )
)


@pytest.mark.parametrize("name", sorted(set(STATES)))
def test_bypass_no_state_for_what_is_no_draft(name):
    site = Site(Limits(), given=0)
    with pytest.raises(PayloadError):
        shim(name)(site, object(), {"data": [], "maps": [], "template": "", "int": 5})


def test_every_entry_that_takes_state_is_made_by_a_reviewed_function():
    for entry in Profile.named(*DATA_PROFILES).entries.values():
        assert not entry.state or entry.make


def test_bypass_elements_and_fields_are_bounded(asm):
    def refused(value, rule, **limits):
        with pytest.raises(PayloadError) as caught:
            loads(pickle.dumps(value), profile=("data", "numpy"), limits=Limits(**limits))
        assert caught.value.rule == rule

    refused(np.dtype("S5000"), "value.dtype", max_array=4096)
    refused(np.dtype([(f"f{n}", "i1") for n in range(10_001)]), "value.dtype")
    doubled = np.dtype([("a", "i1"), ("b", "i1")])
    for _ in range(13):
        doubled = np.dtype([("a", doubled), ("b", doubled)])
    refused(doubled, "pickle.max-refs")
    refused(np.zeros(2, [("a", object)]), "value.dtype")


def test_bypass_elements_without_bytes_take_no_memory(asm):
    nothing = asm.call("numpy:dtype", asm.text("S0"), b"\x89", b"\x88")
    nothing = asm.build(nothing, asm.value(np.dtype("S0").__reduce__()[2]))

    def body(count):
        parts = asm.raw(b""), nothing, asm.tuple(asm.number(count)), asm.text("C")
        return asm.pickle(asm.call("numpy._core.numeric:_frombuffer", *parts))

    # np.empty() would make them of one byte each.
    assert loads(body(5), profile=("data", "numpy")).nbytes == 0
    with pytest.raises(PayloadError) as caught:
        loads(body(1 << 21), profile=("data", "numpy"))
    assert caught.value.rule == "value.array-size"
