"""Objects of registered classes that no header makes, and those that no sender sends."""

from __future__ import annotations

from safeser.families import plain
from tests.samples import classes as own
from tests.samples.typed import hostile, lying, payload, ruled, typed


def with_attribute(value, **attributes):
    vars(value).update(attributes)
    return value


def without_field():
    value = own.Point(1)
    del value.x
    return value


def bag(**attributes):
    made = own.Bag()
    vars(made).update(attributes)
    return made


def doubled():
    made = own.Mixed(1, 2)
    vars(made)["a"] = 5
    return made


class Heir(own.Point):
    pass


class Kid(own.Bag):
    pass


RECORDS = [
    (own.Point(1, lambda: 1), ".y"),
    (with_attribute(own.Point(1), z=1), "not fields"), (without_field(), "no value"),
    (tuple.__new__(own.Pair, (1,)), "number of elements"),
    (with_attribute(own.Tall(1, [2]), z=1), "attributes"), (Heir(1), "Heir"),
    (own.Loose(8), "composed"), (own.Loose(9), "composed"), (own.Many.F1 | own.Many.F2, "composed"),
]  # fmt: skip
OBJECTS = [
    (Kid(), "Kid"), (bag(method=1), "hides a method"), (bag(**{"a b": 1}), "not allowed"),
    (bag(**{"__dunder__": 1}), "not allowed"), (bag(**{"class": 1}), "not allowed"),
    (doubled(), "both in a slot"), (bag(f=lambda: 1), "function"), (bag(k=own.Bag), "type"),
]  # fmt: skip


def record(name, /, **fields):
    return typed(f"{own.__name__}:{name}", plain=plain.encode(fields))


CONSTRUCTED = [
    (*record("Point", x=1), "families.fields"),
    (*record("Point", x=1, y=2, z=3), "families.fields"),
    (*record("Point", x=1, __class__=3), "families.fields"),
    (*record("Point", x=1, doubled=3), "families.fields"),
    (*record("Pair", left=1, right=2, index=3), "families.fields"),
    (*record("Area", x=-1, y=1, size=-1.5, hits=[]), "families.build"),
    (*record("Area", x=2, y=1, size=99.0, hits=[]), "families.constructor"),
    (*record("Area", x=2, y=1, size=3, hits=[]), "families.constructor"),
    (*record("Tidy", tags=[1], names=[]), "families.constructor"),
    (*record("Tidy", tags={1.0, 2}, names=["b", "a"]), "families.constructor"),
    (*record("Tall", a=1, b=(2,)), "families.constructor"),
    (*record("Frozen", name="a"), "families.fields"),
    (*record("Unknown", name="a"), "families.type"),
    (*record("Other", x=9), "families.constructor"),
    (*record("Two", a=5, b=6), "families.constructor"),
    (*record("Rough", inner=5), "families.constructor"),
    (*record("Rough", inner=6), "families.constructor"),
    (*record("Rough", inner=7), "families.constructor"),
]

MEMBERS = {
    "families.member": [
        ("Color", {"member": plain.encode(("RED", 2))}),
        ("Color", {"member": plain.encode(("RED",))}),
        ("Color", {"member": plain.encode(("ALSO_RED", 1))}),
        ("Color", {"member": plain.encode(("__class__",))}), ("Color", {"member": "RED"}),
        ("Color", {"member": ["RED"]}), ("Color", {"flags": 1 << 70}), ("Color", {"flags": 7}),
        ("Rights", {"flags": 8}), ("Rights", {"flags": -1}), ("Rights", {"flags": True}),
        ("Rights", {"flags": 1 << 100}), ("Loose", {"flags": 1 << 40}), ("Many", {"flags": 6}),
    ],
    "families.header": [("Rights", {}), ("Rights", {"flags": 1, "member": b""})],
}  # fmt: skip


def member(name, meta):
    return typed(f"{own.__name__}:{name}", **meta)


def attributes(name, attributes):
    name = name if ":" in name else f"{own.__name__}:{name}"
    return typed(name, plain=plain.encode(attributes))


ATTACKS = [
    "__class__", "__dict__", "__slots__", "__init__", "__getattr__", "__weakref__", "__reduce_ex__",
    "__", "__x", "", " ", "a b", "a.b", "a\0", "method",
    "owned",  # a property with a setter
    "slow", "class", "None", "1a",
    "ﬁeld",  # source code that says so means "field"
    "x²", "\ud800",
]  # fmt: skip
BEYOND = [
    ("Slotted", {"b": 1}), ("Slotted", {"__hidden": 1}), ("somewhere:Narrow", {"c": 1}),
    ("somewhere:Narrow", {"a": 1, "b": 1}),
]  # fmt: skip


#: Which a namespace may hold, though no object does.
NAMES = ["method", "owned", "slow", "class", "None", "ﬁeld"]


def named():
    """Yield names that are no plain attributes, among others that are."""
    for name in ATTACKS:
        for cls in ("Bag", "Slotted", "Mixed"):
            if cls == "Bag" or name not in ("method", "owned", "slow"):
                yield cls, {"a": 1, name: 1}, "families.attribute"
        if name not in NAMES:
            yield "types:SimpleNamespace", {"a": 1, name: 1}, "value.attribute"
    # They could be set to what their own setter refuses.
    for value in (-5, 5):
        yield "Account", {"balance": value}, "families.attribute"


POINT = own.Point(1j, 2)
FIELDS = [["x"], ["x", "x"], ["y", "x", 3], "xy", {"x": 1}, ["x", "z"]]
MISPLACED = {
    "families.child-count": [lying(POINT, "names", to=["x", "y", "z"])],
    "families.header": [
        *(lying(POINT, "names", to=names) for names in FIELDS),
        record("Point", x=b"\0" * (1 << 21), y=1),
        attributes("Bag", {"a": b"x" * (2 << 20)}),
        member("Bag", {"plain": plain.encode({}), "names": ["a"] * 1000}),
    ],
}

UNSENT = [*RECORDS, *OBJECTS]
HOSTILE = [
    *ruled(payload, CONSTRUCTED), *hostile(member, MEMBERS), *ruled(attributes, named()),
    *hostile(attributes, {"families.attribute": BEYOND}), *hostile(payload, MISPLACED),
]  # fmt: skip
