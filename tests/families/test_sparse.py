"""SciPy's sparse matrices: any of them, without copies."""

import numpy as np
from scipy import sparse

from safeser import families
from safeser.values import Limits
from tests.samples.same import same
from tests.samples.typed import FAMILIES, GRANT, shifted, through
from tests.samples.values.sparse import DENSE


def test_nothing_is_copied():
    x = sparse.random_array((200, 300), density=0.2, format="csr", rng=1)
    header, frames = families.serialize(x, FAMILIES)
    for part in (x.data, x.indices, x.indptr):
        assert any(np.shares_memory(part.view("u1"), frame) for frame in frames)
    buffers = [bytearray(frame) for frame in frames]
    y = families.deserialize(header, buffers, GRANT)
    for part in (y.data, y.indices, y.indptr):
        assert any(np.shares_memory(part.view("u1"), buffer) for buffer in buffers)
    same(x, y)


def test_numbers_seen_many_times_arrive_whole():
    data = np.broadcast_to(np.float64(2), (4,))
    x = sparse.csr_array((data, np.arange(4), np.array([0, 2, 4])), shape=(2, 4), copy=False)
    x.data = data
    y = through(x)
    assert y.toarray().tolist() == x.toarray().tolist()
    assert y.data.strides == (8,)


def test_unaligned_frames():
    x = sparse.csr_array(DENSE)
    header, frames = families.serialize(x, FAMILIES)
    y = families.deserialize(header, shifted(frames), GRANT)
    same(x, y)
    assert y.data.flags.aligned
    assert y.indices.flags.aligned


def test_many_elements_take_no_call_each():
    x = sparse.random_array((60, 60), density=0.5, format="lil", rng=1)
    few = Limits(max_calls=20)
    for each in (x, x.todok()):
        header, frames = families.serialize(each, FAMILIES, limits=few)
        same(each, families.deserialize(header, [*map(bytes, frames)], GRANT, limits=few))
