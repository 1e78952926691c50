"""Rows of the list of patches for clients, and for how any process makes tokens, keys and pickles.

The one rule: a method of Dask's client is replaced only where a peer's message would do more than
be read; :class:`safeser.Client` overrides the others that it changes. Tokens, registrations and
pickles are Dask's own, unless ``safeser.tokenizer`` names safeser's tokenizer.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from safeser.dask.clients.call_pickles import normalize_pickle, traced_dumps, traced_loads
from safeser.dask.clients.decorated import register
from safeser.dask.clients.gathering import track_future
from safeser.dask.clients.progress_bars import listen
from safeser.dask.clients.tokenizer import own_token
from safeser.dask.contents.opened_graph import FAMILY, own_functions
from safeser.dask.patches.patch import Patch
from safeser.dask.settings import uses_own_tokenizer

__all__ = ["ROWS"]


def _direct_worker_rpc(stock: property) -> property:
    """Return Dask's ``Actor._worker_rpc``, which leads past the scheduler if graphs are sealed.

    The session of its caller authenticates a call. A scheduler that relayed calls could make
    others, of any method that the actor's class has.
    """
    ask = stock.fget
    assert ask is not None

    def worker_rpc(actor: Any) -> Any:
        found = ask(actor)  # binds the actor to a client or worker
        if actor._worker is None and getattr(actor._client, "seals", False):
            return actor._client.rpc(actor._address)
        return found

    return property(worker_rpc)


_patch = partial(Patch, needed=False)

ROWS = (
    _patch(
        target="distributed.client:as_completed._track_future",
        reason="as_completed(with_results=True) waits for ever for a value that may not come.",
        by=track_future,
    ),
    _patch(
        target="distributed.actor:Actor._worker_rpc",
        reason="A scheduler that opens nothing relays no calls of actors: it could make others.",
        replace=_direct_worker_rpc,
    ),
    *(
        _patch(
            target=f"distributed.diagnostics.progressbar:{name}.listen",
            reason="A progress bar has the scheduler run a function, which not everybody may.",
            by=listen,
        )
        for name in ("ProgressBar", "MultiProgressBar")
    ),
    Patch(
        target=f"distributed.protocol.serialize:families[{FAMILY}]",
        reason="Dask's scheduler opens a graph by a family that it knows; safeser hands"
        " it the tasks that were verified.",
        replace=own_functions,
        source=("distributed.protocol.serialize:register_serialization_family",),
    ),
    _patch(
        target="dask.tokenize:_tokenize",
        reason="Dask's tokens of 16 of 32 objects differ between hash seeds, and ten of those pass"
        " ensure_deterministic.",
        by=own_token,
        source=("dask.tokenize:_tokenize", "dask.tokenize:tokenize"),
        when=uses_own_tokenizer,
    ),
    _patch(
        target="dask.tokenize:_normalize_pickle",
        reason="Dask pickles and unpickles each argument twice for each token, and map makes two"
        " tokens of each.",
        by=normalize_pickle,
    ),
    _patch(
        target="dask.utils:Dispatch.register",
        reason="distributed takes functions that no policy lets safeser call, and headers that"
        " pickle the class; without a word to the one who registers them, objects of the class"
        " travel by another family.",
        by=register,
    ),
    *(
        _patch(
            target=f"distributed.protocol.pickle:{name}",
            reason="Graphs that Dask pickles and opens itself are in no trace of serialization.",
            by=by,
        )
        for name, by in (("dumps", traced_dumps), ("loads", traced_loads))
    ),
)
