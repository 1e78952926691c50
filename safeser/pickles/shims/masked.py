"""What tasks call in place of functions that are given arrays with a mask.

The one rule: nothing that is returned holds memory behind a mask that nobody has written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from safeser.pickles.shims.lookups import by_name
from safeser.pickles.shims.whole import refuse

__all__ = ["weighed"]

#: By place, of those that take weights by place.
_WEIGHTS_AT = 5


def weighed(original: str) -> Callable[..., Any]:
    """Return *original*, which takes weights, for whatever has no mask if there are any.

    With weights NumPy makes room for an array like the first one, and of quantiles that it says to
    be masked it writes nothing else.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("weights") is not None or len(args) > _WEIGHTS_AT:
            for value in (*args, *kwargs.values()):
                if isinstance(value, np.ma.MaskedArray):
                    raise refuse("a weighted quantile of", value)
        return by_name(original)(*args, **kwargs)

    return call
