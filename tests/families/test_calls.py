"""What a call of joblib's raised, as its result."""

import pytest
from families_attack import FAMILIES, through

from safeser import families
from safeser.errors import PayloadError

pytest.importorskip("joblib")
loky = pytest.importorskip("joblib.externals.loky.process_executor")
called = pytest.importorskip("joblib._utils")


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
