"""SciPy's sparse matrices: any of them, without copies."""

import numpy as np
from scipy import sparse

from safeser import families
from safeser.gate.values import Limits
from tests.samples.same import same
from tests.samples.typed import FAMILIES, GRANT, through


def test_numbers_seen_many_times_arrive_whole():
    data = np.broadcast_to(np.float64(2), (4,))
    x = sparse.csr_array((data, np.arange(4), np.array([0, 2, 4])), shape=(2, 4), copy=False)
    x.data = data
    y = through(x)
    assert y.toarray().tolist() == x.toarray().tolist()
    assert y.data.strides == (8,)


def test_many_elements_take_no_call_each():
    x = sparse.random_array((60, 60), density=0.5, format="lil", rng=1)
    few = Limits(max_calls=20)
    for each in (x, x.todok()):
        header, frames = families.serialize(each, FAMILIES, limits=few)
        same(each, families.deserialize(header, [*map(bytes, frames)], GRANT, limits=few))
