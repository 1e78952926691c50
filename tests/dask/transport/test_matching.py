"""Contexts that ask for a transport or a host: matched by what each end measured on its socket."""

from __future__ import annotations

import dask
import numpy as np
import pytest
from distributed.comm.core import connect
from distributed.protocol import to_serialize

from safeser.dask import comm_backend as module

POLICY = """
safeser: 1
name: near
revision: 1
principals: {scheduler: {}, worker: {}, nanny: {}, client: {}}
contexts:
  - name: registers
    sender: worker
    recipient: scheduler
    operations: {grant: [register-worker]}
  - name: near
    sender: client
    recipient: scheduler
    transport: [safeser, tls]
    same_host: true
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
    operations: {grant: [basic]}
  - name: far
    sender: client
    recipient: scheduler
    same_host: false
    operations: {grant: [identity, close]}
  - name: answers
    sender: scheduler
    recipient: client
    kinds: [admin, data]
    transport: safeser
    serializers: [dask, msgpack]
    deserializers: [dask, msgpack]
...
"""

LOOK = {"op": "nbytes", "keys": [], "reply": True}


@pytest.fixture
def matching(net, tmp_path):
    path = tmp_path / "near.yaml"
    path.write_text(POLICY)
    with dask.config.set({"safeser.policy": str(path)}):
        yield net


async def test_on_loopback_the_other_end_is_on_this_host(matching):
    async with matching.serving() as listener:
        comm = await connect(listener.contact_address, timeout=10, **matching.arguments())
        assert (comm.link.transport, comm.link.same_host) == ("safeser", True)
        array = {"op": "scatter", "data": {"x": to_serialize(np.arange(3))}, "reply": True}
        for message in (LOOK, array):
            await comm.write(message)
            assert (await comm.read())["status"] == "OK"
        await comm.close()


@pytest.mark.parametrize("measured", [False, None])
def test_a_peer_that_claims_to_be_near_is_where_it_was_measured(
    matching, run, monkeypatch, measured
):
    # The client takes itself for near, says so wherever it can, and asks what only those may.
    claim = {"same_host": True, "transport": "safeser", "host": "127.0.0.1", "peer": "127.0.0.1"}
    greeting = module.SafeserComm.handshake_info
    monkeypatch.setattr(
        module.SafeserComm, "handshake_info", lambda self: {**greeting(self), **claim}
    )
    answers = []
    real = module._Listener._authenticate

    async def elsewhere(self, stream, peer):
        link = await real(self, stream, peer)
        link.same_host = measured  # as read off this end's socket
        return link

    monkeypatch.setattr(module._Listener, "_authenticate", elsewhere)

    async def main():
        async with matching.serving() as listener:
            comm = await connect(listener.contact_address, timeout=10, **matching.arguments())
            await comm.write(LOOK)
            answers.append(await comm.read())
            await comm.close()

    if measured is None:
        # No context is left, not even for Dask's own handshake.
        with pytest.raises(OSError, match=r"handshake|closed|Timed out|connect"):
            run(main())
        return
    run(main())
    (refusal,) = answers
    assert refusal["status"] == "uncaught-error"
    assert "operation nbytes is not granted in context 'far'" in str(refusal["exception"])
    assert matching.seen == []
