"""What a call of joblib's raised, as its result."""

import joblib.externals.loky.process_executor as loky
import pytest
from joblib import _utils as called

from safeser import families
from safeser.errors import PayloadError
from tests.samples.typed import FAMILIES, through


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return loky._ExceptionWithTraceback(caught)


class Own(Exception):
    """Known to nobody else."""


@pytest.mark.parametrize(
    ("error", "shown"),
    [(KeyError("x"), "'x'"), (Own("why"), "Own: why"), (OSError(2, "no"), "no")],
)
def test_joblib_raises_what_its_call_raised(error, shown):
    with pytest.raises(Exception, match=shown):
        called._retrieve_traceback_capturing_wrapped_call(through(raised(error)))


def test_what_is_no_error_is_not_sent():
    made = raised(KeyError("x"))
    made.exc = "x"
    with pytest.raises(PayloadError):
        families.serialize(made, FAMILIES)
