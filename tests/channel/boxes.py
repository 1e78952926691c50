"""A folder of keys, a roster and a policy, as boxes need them, and a clock that tests set."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

from safeser.channel.box import Box
from safeser.errors import SafeserError
from safeser.identity import Identity, KeyState, Roster, RosterEntry
from tests.conftest import Witness
from tests.refusal import refusal

#: ann hands bea and herself data and listed pickles; bea hands ann code, of which ann opens data
#: alone; cy is listed and may hand nobody anything but on a connection.
POLICY = """
safeser: 1
name: boxes
revision: 3
principals: {ann: {}, bea: {}, cy: {}}
contexts:
  - name: there
    sender: ann
    recipient: [bea, ann]
    kinds: [data]
    transport: box
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    pickle: {profile: [data]}
  - name: code
    sender: bea
    recipient: ann
    kinds: [data]
    transport: box
    submission: code
    serializers: [dask, msgpack, pickle, cloudpickle]
    deserializers: [dask, msgpack]
    pickle: {profile: [data]}
  - name: connections
    sender: [ann, cy]
    recipient: bea
    transport: [safeser, library]
limits: {max_bytes: 8MiB, max_memory: 1280000}
...
"""

NOW = 1_800_000_000.0

Q = "queue: tasks"

#: How ann seals for bea, and how bea opens that.
WAYS = {
    "pair": ({"to": "bea"}, {}),
    "signed": ({"to": "bea", "signed": True}, {"signed": True}),
    "readers": ({"signed": True}, {"signed": True}),
}


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Folder:
    """The files of all principals in one folder, as a test changes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock()
        path.mkdir(mode=0o700)
        self.identities = {name: Identity.generate(name) for name in ("ann", "bea", "cy")}
        for name, identity in self.identities.items():
            identity.save(path / f"{name}.key")
        day = datetime.date(2020, 1, 1)
        self.roster = Roster(RosterEntry.of(each, created=day) for each in self.identities.values())
        self.write_roster()
        (path / "policy.yaml").write_text(POLICY)

    def write_roster(self) -> None:
        lines = [entry.text() for entry in self.roster.entries]
        (self.path / "roster").write_text("\n".join([*lines, f"end {len(lines)}", ""]))

    def change(self, whose: str, **more: object) -> None:
        """Change the lines of *whose* in the roster."""
        entries = self.roster.entries
        self.roster = Roster(replace(e, **more) if e.principal == whose else e for e in entries)
        self.write_roster()

    def list_as(self, whose: str, state: KeyState) -> None:
        self.change(whose, state=state)

    def box(self, principal: str, **more: object) -> Box:
        """Return a box that tells its decisions to :func:`events`, by the clock of this folder."""
        box = Box.at(self.path, principal, **{"audit": Witness(), **more})
        box._keys.clock = self.clock
        return box


def shared(clock: Clock, *secrets: object, **more: object) -> Box:
    """Return a box of a shared secret, by the same clock."""
    box = Box.shared(secrets, **{"audit": Witness(), **more})
    box._keys.clock = clock
    return box


def events(box: Box) -> list[dict[str, object]]:
    """Return what the log of *box* has."""
    return box._keys.audit.events


def look(box: Box) -> None:
    """Have *box* look at its files now, as the thread does each second."""
    for _ in range(3):
        box._keys._files.look()


def refused(box: Box, error: type[SafeserError], rule: str, data: bytes, **how) -> SafeserError:
    """Have *box* refuse *data*, once and with one record, and return the error."""
    before = len(events(box))
    with refusal(error, rule) as caught:
        box.open(data, **{"about": Q, **how})
    (event,) = events(box)[before:]
    assert event["permitted"] is False
    assert event["rule"] == rule
    return caught.value
