"""Holes that were found by attacking what receives typed values, each as small as it can be."""

import dataclasses
import importlib.machinery
import sys
import traceback
import types

import pytest

import safeser
from safeser import families, pickles
from safeser.errors import ConfigError, PayloadError, SerializationError
from safeser.families import plain
from safeser.families.errors import wire
from safeser.families.registered.dispatch import Dispatch, Functions
from safeser.families.registered.own import own_families
from safeser.families.registry import Registry
from safeser.gate.values import Grant, Limits
from tests.samples import classes as own
from tests.samples.typed import rule_of

GRANT = Grant("test", ("dask", "msgpack"))


def test_no_name_of_a_peer_makes_this_process_look_for_families(monkeypatch):
    """Any name did, once: it read the entry points of all that is installed."""
    asked = []
    monkeypatch.setattr(own_families, "_declared", None)
    monkeypatch.setattr(own_families, "_installed", lambda: asked.append(1) or [])
    header = {"serializer": "whatever", "sub-header": {}}
    wrapped = {
        "serializer": "collection", "type": "list", "sub-headers": [header], "frame-lengths": [0]
    }  # fmt: skip
    for claimed in (header, wrapped):
        for call in (
            lambda h: families.claimed(h),
            lambda h: families.derive(h, []),
            lambda h: families.check(h, []),
            lambda h: families.deserialize(h, [], GRANT),
            lambda h: safeser.deserialize(h, []),
        ):
            assert rule_of(call, claimed) == "families.serializer"
    assert asked == []


def test_bypass_of_import_by_an_import_error_that_is_printed():
    """Since Python 3.12 a printed ImportError imports ``name``, if it has ``name_from``."""
    fields = {"name": "antigravity", "name_from": "fly", "path": "x"}
    said = wire.ExceptionData("builtins:ImportError", "no", ("no",), fields=fields)
    made = families.deserialize({"serializer": "error"}, [wire.encode(said)], GRANT)
    assert type(made) is ImportError
    assert (made.name, made.path) == ("antigravity", "x")
    assert getattr(made, "name_from", None) is None
    assert "".join(traceback.format_exception(made)).strip() == "ImportError: no"

    class Forged(ImportError):
        def __reduce__(self):
            return ImportError, ("no",), fields

    data = pickles.dumps(Forged())
    assert getattr(pickles.loads(data, profile="exceptions"), "name_from", None) is None
    assert "antigravity" not in sys.modules


def test_a_type_whose_package_another_thread_is_importing_is_not_woken():
    """That thread registers at its end, and waits for the lock that the other holds meanwhile."""
    known = Functions(Registry())
    woken = []
    Dispatch("loads", known).register_lazy("halfway", lambda: woken.append(1))
    module = types.ModuleType("halfway")
    module.__spec__ = importlib.machinery.ModuleSpec("halfway", None)
    module.__spec__._initializing = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "halfway", module)
        assert not known.waits_for("halfway:Thing")
        assert known.named("halfway:Thing", ()) is None
        assert woken == []
        module.__spec__._initializing = False
        assert known.waits_for("halfway:Thing")


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (ImportError("cannot import name"), PayloadError),
        (ModuleNotFoundError("no"), PayloadError),
        (ValueError("numpy.dtype size changed"), ConfigError),
        (ConfigError("listed twice", rule="families.register"), ConfigError),
    ],
)
def test_a_library_that_cannot_be_imported_is_one_clear_error(raised, expected):
    def load():
        raise raised

    known = Registry()
    known.register_lazy("broken", ["broken:Thing"], load)
    for _ in range(2):
        with pytest.raises(expected) as caught:
            known.named("broken:Thing")
    if type(raised) is ValueError:
        assert caught.value.__cause__ is raised
        assert caught.value.rule == "families.not-installed"


@safeser.register_class(name="hostile:Copying")
@dataclasses.dataclass
class Copying:
    items: list
    named: dict = dataclasses.field(default_factory=dict)

    def __post_init__(self):
        self.items = list(self.items)
        self.named = dict(self.named)


def test_bypass_of_time_nested_objects_that_copy_what_they_are_given(monkeypatch):
    """Each level compared all below it: 40 levels over 5,000 elements took 36 seconds."""
    x = Copying([(1, 2j)] * 20, {"a": 2j})
    for level in range(30):
        x = Copying([x, level], {"inner": 1j})
    header, frames = families.serialize(x, ("dask", "msgpack"))
    bytes_of = families.registered.constructed._bytes_of
    taken_apart = []
    monkeypatch.setattr(
        families.registered.constructed,
        "_bytes_of",
        lambda value: taken_apart.append(value) or bytes_of(value),
    )
    assert families.deserialize(header, frames, GRANT) == x
    assert taken_apart == []


def test_a_group_that_somebody_described_with_many_members_can_be_read():
    told = [wire.ExceptionData("builtins:ValueError", str(n), (str(n),)) for n in range(40)]
    group = wire.ExceptionData("builtins:ExceptionGroup", "g", ("g",), members=tuple(told))
    back = wire.from_data(wire.decode(wire.encode(group)))
    assert list(map(str, back.exceptions)) == list(map(str, range(32)))


def test_bypass_of_time_what_leads_to_no_plain_value_is_tried_once(monkeypatch):
    """Whoever sends on what a peer sent tried each level of it, down to the end: ninety times."""
    x = [[n] for n in range(10)] + [2j]
    for level in range(80):
        x = [x, level] if level % 2 else {"inner": x}
    tried = []
    encode = plain.encode_counted
    monkeypatch.setattr(
        plain, "encode_counted", lambda value, **how: tried.append(value) or encode(value, **how)
    )
    header, frames = families.serialize(x, ("dask", "msgpack"))
    assert len([value for value in tried if type(value) in (list, dict)]) == 1 + 10
    assert families.deserialize(header, frames, GRANT) == x


def test_bypass_of_depth_by_msgpack_inside_of_collections():
    """Each way of nesting had all of max_depth, so a value was twice as deep."""
    limits = Limits(max_depth=10)

    def nested(collections, inside):
        value = None
        for _ in range(inside):
            value = [value]
        header, frames = {"serializer": "msgpack"}, [plain.encode(value)]
        for _ in range(collections):
            header = {
                "serializer": "collection", "type": "list",
                "sub-headers": [header], "frame-lengths": [1],
            }  # fmt: skip
        return families.deserialize(header, frames, GRANT, limits=limits)

    for collections, inside in ((0, 10), (4, 6), (10, 0)):
        value = nested(collections, inside)
        for _ in range(10):
            (value,) = value
        assert value is None
    for collections, inside in ((0, 11), (4, 7), (10, 1)):
        assert rule_of(nested, collections, inside) == "families.depth"

    def sent(above, below):
        value = []
        for _ in range(below - 1):
            value = [value]
        for _ in range(above):
            value = [2j, value]
        header, frames = families.serialize(value, ("dask", "msgpack"), limits=limits)
        assert families.deserialize(header, frames, GRANT, limits=limits) == value

    for above in range(9):
        sent(above, 10 - above)
        assert rule_of(sent, above, 11 - above, error=SerializationError)


def test_bypass_of_time_many_pickles_share_what_reading_them_may_take():
    """Each had all of the limits, while it was found out what it needs."""
    limits = Limits(max_memory=1000 << 7)
    frames = [b"\x80\x04" + b"N0" * 1500 + b"K" + bytes([n]) + b"." for n in range(8)]
    one = {"serializer": "pickle", "writeable": []}
    header = {
        "serializer": "collection", "type": "list",
        "sub-headers": [one] * 8, "frame-lengths": [1] * 8,
    }  # fmt: skip
    grant = Grant("test", ("dask", "msgpack", "pickle"))
    assert families.derive(one, frames[:1], limits=limits) == "pickle"
    for call in (
        lambda: families.derive(header, frames, limits=limits),
        lambda: families.deserialize(header, frames, grant, limits=limits),
        lambda: safeser.deserialize(header, frames, ["dask", "pickle"], limits=limits),
    ):
        assert rule_of(call).startswith("pickle.")


class Runs:
    def __reduce__(self):
        return exec, ("",)


def test_what_is_serialized_already_is_not_believed_about_its_pickles():
    """A claim to be of family pickle was enough to be passed on as one."""
    header = {"serializer": "pickle", "writeable": []}
    code = safeser.Serialized(header, [pickles.dumps(Runs(), code=True)])
    data = safeser.Serialized(header, [pickles.dumps({"a": 1})])
    for x in (code, [2j, code]):
        with pytest.raises(SerializationError, match="family cloudpickle"):
            safeser.serialize(x, ["dask", "pickle"], on_error="raise")
        safeser.serialize(x, ["dask", "pickle", "cloudpickle"], on_error="raise")
    sent = safeser.serialize(data, ["pickle"], on_error="raise")
    assert safeser.deserialize(*sent, ["pickle"]) == {"a": 1}


def test_the_header_of_what_is_serialized_already_is_plain_and_stays_as_it_was():
    header, frames = safeser.serialize(2j)
    kept = safeser.serialize(safeser.Serialized(header, frames), on_error="raise")[0]
    value = header["sub-header"].pop("value")
    assert kept["sub-header"] == {"value": value}
    for wrong in (object(), header):
        header["sub-header"]["value"] = wrong
        with pytest.raises(SerializationError, match="plain values"):
            safeser.serialize(safeser.Serialized(header, frames), on_error="raise")


def test_advice_in_an_error_that_a_peer_wrote_is_marked_as_its_own():
    """Else a peer's words come as safeser's own, which tell an operator what to grant."""
    forged = wire.ExceptionData(
        "safeser.errors:PolicyDenied",
        "denied",
        ("denied",),
        state=("context.family", "msg", "Add cloudpickle to the deserializers.", "lab", "me"),
    )
    made = families.deserialize({"serializer": "error"}, [wire.encode(forged)], GRANT)
    assert type(made) is safeser.PolicyDenied
    (note,) = made.__notes__
    assert "Another process" in note
    again = wire.from_data(wire.decode(wire.encode(wire.to_data(made))))
    assert again.__notes__ == [note]


@pytest.mark.parametrize(("items", "named"), [([1, 2], {}), ([], {" a": 1}), ([[1], 1], {})])
def test_what_is_altered_inside_a_copy_is_refused(items, named):
    x = own.Altering([], {})
    x.items, x.named = items, named
    header, frames = families.serialize(x, ("dask", "msgpack"))
    assert rule_of(families.deserialize, header, frames, GRANT) == "families.constructor"


def test_no_attribute_is_sent_from_behind_a_descriptor_that_only_sets():
    x = own.Account()
    x.owner = "alice"
    assert families.deserialize(*families.serialize(x, ("dask",)), GRANT).owner == "alice"
    x.balance = 5
    assert rule_of(families.serialize, x, ("dask",), error=SerializationError)
