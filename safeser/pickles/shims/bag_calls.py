"""What tasks call in place of functions of dask.bag, as workers load it.

The one rule: see :func:`safeser.pickles.shims.calls.with_their_library`.
"""

from safeser.pickles.shims.calls import with_their_library

globals().update(with_their_library("dask.bag"))
