"""A folder of keys, a roster and policies, for an app whose guests send data alone."""

from __future__ import annotations

import datetime
from pathlib import Path

from safeser.identity import Identity, Roster, RosterEntry

POLICY = """
safeser: 1
name: shop
revision: 1
principals: {web: {}, guest: {}, stranger: {}, worker: {}}
contexts:
  - name: tasks
    sender: [web, worker]
    recipient: worker
    kinds: [data]
    transport: box
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    pickle: {profile: [data, numpy]}
  - name: tasks-of-guests
    sender: guest
    recipient: worker
    kinds: [data]
    transport: box
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
  - name: results
    sender: worker
    recipient: web
    kinds: [data]
    transport: box
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
...
"""
#: What an attacker's own process does: as POLICY, but that guests and strangers seal pickles.
LOOSE = POLICY.replace("sender: guest", "sender: [guest, stranger]").replace(
    "    serializers: [dask, msgpack]\n    deserializers: [dask, msgpack]\n",
    "    serializers: [pickle, msgpack]\n    deserializers: [pickle, msgpack]\n"
    "    pickle: {profile: [data]}\n",
    1,
)


def write_keys(folder: Path, *identities: Identity) -> None:
    """Write the files of *identities*, as ``safeser keys init`` does."""
    folder.mkdir(mode=0o700, parents=True)
    entries = [RosterEntry.of(each, created=datetime.date(2020, 1, 1)) for each in identities]
    for each in identities:
        each.save(folder / f"{each.principal}.key")
    lines = [entry.text() for entry in Roster(entries).entries]
    (folder / "roster").write_text("\n".join([*lines, f"end {len(lines)}", ""]))
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "loose.yaml").write_text(LOOSE)
