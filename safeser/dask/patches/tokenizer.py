"""Which tokenizer Dask's collections and clients use in this process.

The one rule: Dask's own, unless ``safeser.tokenizer`` names safeser's. Dask's own pickles an object
once for each call that submits it.
"""

from __future__ import annotations

from safeser.dask.clients.call_pickles import replace_normalizer
from safeser.dask.clients.tokenizer import replace_tokenizer
from safeser.dask.patches.patch import ANY, Patch
from safeser.dask.settings import uses_own_tokenizer

__all__ = ["ROWS"]

ROWS = (
    Patch(
        target="dask.tokenize:_tokenize",
        reason="Dask's tokens of 16 of 32 objects differ between hash seeds, and ten of those pass"
        " ensure_deterministic.",
        process=ANY,
        needed=False,
        replace=replace_tokenizer,
        source=("dask.tokenize:_tokenize", "dask.tokenize:tokenize"),
        when=uses_own_tokenizer,
    ),
    Patch(
        target="dask.tokenize:_normalize_pickle",
        reason="Dask pickles and unpickles each argument twice for each token, and map makes two"
        " tokens of each.",
        process=ANY,
        needed=False,
        replace=replace_normalizer,
    ),
)
