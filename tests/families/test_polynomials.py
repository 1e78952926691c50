"""NumPy's polynomials: exact, or refused."""

from __future__ import annotations

import numpy as np
import pytest
from families_attack import FAMILIES, GRANT, mutate_all, sent_as, through
from numpy.polynomial import Chebyshev, Hermite, HermiteE, Laguerre, Legendre, Polynomial

from safeser import families
from safeser.errors import PayloadError
from tests.samples.uses import BROKEN

KINDS = [Chebyshev, Hermite, HermiteE, Laguerre, Legendre, Polynomial]


@pytest.mark.parametrize("kind", KINDS)
def test_series(kind):
    for made in (kind([1, 2, 3]), kind([1j], domain=[0, 5], window=[1, 2], symbol="t")):
        back = through(made)
        assert type(back) is kind
        assert back == made
        assert repr(back) == repr(made)
        assert back.coef.dtype == made.coef.dtype
        assert back(2.5) == made(2.5)


def test_polynomials():
    made = np.poly1d([1, 2, 3], variable="z")
    back = through(made)
    assert type(back) is np.poly1d
    assert back == made
    assert str(back) == str(made)
    assert back.coeffs.dtype == made.coeffs.dtype


def test_one_that_was_pickled_before():
    made = Polynomial([1.0, 2.0], symbol="t")
    made.__setstate__(made.__getstate__())
    assert through(made) == made


def test_coefficients_that_nobody_may_write_to():
    made = Polynomial([1.0, 2.0, 3.0])
    made.coef.flags.writeable = False
    assert through(made) == made


def with_more(x):
    x.more = 1
    return x


def turned(x):
    x.coef = np.array([1, 2])  # numbers that its constructor makes floats of
    return x


@pytest.mark.parametrize("value", [with_more(Polynomial([1])), with_more(np.poly1d([1]))])
def test_what_would_be_altered_is_refused(value):
    with pytest.raises(PayloadError, match=r"fields of its class|not of the type"):
        families.serialize(value, FAMILIES)


def test_numbers_that_the_constructor_would_convert_are_refused():
    with pytest.raises(PayloadError, match="polynomial"):
        families.serialize(turned(Polynomial([1.0])), FAMILIES)
    header, frames = sent_as("numpy.polynomial:series", turned(Polynomial([1.0])))
    families.check(header, frames)
    with pytest.raises(PayloadError, match="polynomial"):
        families.deserialize(header, frames, GRANT)


def use(value):
    for act in (
        lambda: repr(value),
        lambda: value(2),
        lambda: value.deriv(),
        lambda: value + value,
    ):
        try:
            act()
        except BROKEN:
            raise
        except Exception:
            pass


@pytest.mark.parametrize("value", [np.poly1d([1, 2]), Chebyshev([1, 2])])
def test_headers_that_lie(value):
    refused, accepted = mutate_all(value, use, every=3)
    assert refused > accepted
