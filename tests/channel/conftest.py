"""One small policy in which each direction differs, and links under it."""

from __future__ import annotations

import pytest

from safeser.audit import AuditKey, AuditLog
from safeser.gate.values import Kind
from tests.channel.rosters import Calendar

# ann may send bea anything; bea answers with data and listed pickles; what bea seals for cy is more
# than cy opens; dora is listed and may talk to nobody.
POLICY = """
safeser: 1
name: doors
revision: 3
principals: {ann: {}, bea: {}, cy: {}, dora: {}}
contexts:
  - name: code
    sender: ann
    recipient: bea
    submission: code
    serializers: [dask, msgpack, pickle, cloudpickle]
    deserializers: [dask, msgpack, pickle, cloudpickle]
    pickle: {profile: [data, numpy]}
    operations: {grant: [basic, run]}
  - name: answers
    sender: bea
    recipient: ann
    serializers: [dask, msgpack, pickle]
    deserializers: [dask, msgpack, pickle]
    pickle: {profile: [data]}
    operations: {grant: [basic]}
  - name: too-much
    sender: bea
    recipient: cy
    kinds: [admin, data]
    submission: code
    serializers: [dask, msgpack, pickle, cloudpickle]
    deserializers: [msgpack]
    pickle: {profile: [data]}
    operations: {grant: [basic]}
  - name: little
    sender: cy
    recipient: bea
    kinds: [admin, data]
    operations: {grant: [basic]}
limits: {max_bytes: 8MiB, max_memory: 1280000}
"""


@pytest.fixture(scope="session")
def policy() -> str:
    return POLICY


@pytest.fixture
def calendar():
    return Calendar()


@pytest.fixture
def bea(doors, policy, calendar):
    return doors.channel("bea", policy, today=calendar)


@pytest.fixture
def link(doors, policy, bea):
    """Bea's side of a connection that ann opened."""
    _, far = doors.shake(doors.channel("ann", policy), bea)
    return far


@pytest.fixture
def sent(doors, policy, bea):
    """Return what sends one value from ann to bea, who opens it."""
    ann = doors.channel("ann", policy)
    near, far = doors.shake(ann, bea)
    context = far.inbound(Kind.DATA)

    def send(value):
        frames = near.seal(value, near.outbound(Kind.DATA))
        return far.load(far.admit_message(far.verify(frames), context))[0]

    return send


@pytest.fixture
def ends(doors, tmp_path):
    """Links of ann and bea under a policy, and their logs, in folders of their names."""
    logs = []

    def made(policy: str):
        channels = []
        for name in ("ann", "bea"):
            log = AuditLog.open(tmp_path / name, key=AuditKey.new(), principal=name)
            logs.append(log)
            channels.append(doors.channel(name, policy, audit=log))
        return doors.shake(*channels), logs

    yield made
    for log in logs:
        log.close()
