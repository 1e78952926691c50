"""PyTorch's tensors: exact on the other side, and refused with the call that helps."""

import collections

import numpy as np
import pytest

from safeser import families
from safeser.errors import PayloadError, SafeserError
from tests.samples.typed import FAMILIES, GRANT, LIMITS, mutate_all, through

torch = pytest.importorskip("torch")

FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
COMPLEX = ("complex32", "complex64", "complex128")


def same(a, b):
    assert type(a) is type(b)
    assert (a.dtype, a.shape, a.requires_grad) == (b.dtype, b.shape, b.requires_grad)
    if a.numel():
        one, two = (x.detach().contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
        assert torch.equal(one, two)
    assert (a.grad is None) is (b.grad is None)
    if a.grad is not None:
        same(a.grad, b.grad)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS, *COMPLEX])
@pytest.mark.parametrize("frozen", [True, False])
def test_every_dtype(name, frozen):
    dtype = getattr(torch, name)
    x = torch.arange(6).reshape(2, 3)
    x = x.to(torch.float32).to(dtype) if name in FLOATS else x.to(dtype)
    for made in (x, x[0], x[0, 1], x[:0]):
        got = through(made, frozen=frozen)
        same(made, got)
        assert got.is_contiguous()


def test_layouts():
    x = torch.arange(24.0).reshape(2, 3, 4)
    for made in (
        x.permute(2, 1, 0),
        x.permute(1, 0, 2),
        x.unsqueeze(0).to(memory_format=torch.channels_last),
    ):
        got = through(made, frozen=False)
        same(made, got)
        assert got.stride() == made.stride()
    for made in (x[:, ::2], x[..., 1], x[:, :0], torch.zeros(1, 3)[:, 1:]):
        got = through(made, frozen=False)
        same(made, got)
        assert got.is_contiguous()


def test_gradients_and_parameters():
    weight = torch.nn.Parameter(torch.ones(3))
    (weight * 2).sum().backward()
    frozen = torch.nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)
    for made in (weight, frozen, torch.ones(2, requires_grad=True)):
        got = through(made)
        same(made, got)
        assert got.is_leaf
    assert through({"w": weight})["w"].grad.tolist() == [2.0, 2.0, 2.0]


def test_state_dicts():
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    state = model.state_dict()
    got = through(state)
    assert type(got) is collections.OrderedDict
    assert list(got) == list(state)
    assert got._metadata == state._metadata
    assert type(got._metadata) is collections.OrderedDict
    for name, value in state.items():
        same(value, got[name])
    other = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    assert str(other.load_state_dict(got)) == "<All keys matched successfully>"
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    torch.optim.Adam(other.parameters()).load_state_dict(through(optimizer.state_dict()))


def test_nothing_is_copied():
    x = torch.arange(100.0, dtype=torch.bfloat16).reshape(10, 10).T
    header, (frame,) = families.serialize(x, FAMILIES)
    assert np.frombuffer(frame, "u1").ctypes.data == x.data_ptr()
    buffer = bytearray(frame)
    got = families.deserialize(header, [buffer], GRANT)
    assert got.data_ptr() == np.frombuffer(buffer, "u1").ctypes.data
    got[0, 0] = 7
    assert bytes(buffer) != bytes(frame)


def test_unaligned_frames():
    x = torch.arange(5.0)
    header, (frame,) = families.serialize(x, FAMILIES)
    got = families.deserialize(header, [memoryview(bytearray(b"x" + bytes(frame)))[1:]], GRANT)
    same(x, got)
    assert got.data_ptr() % 8 == 0


def test_small_values():
    for value in (torch.Size([2, 3]), torch.bfloat16, torch.device("cpu"), torch.device("cuda", 1)):
        got = through(value)
        assert type(got) is type(value)
        assert got == value


class Mine(torch.Tensor):
    """A subclass of the user's own."""


def _marked():
    made = torch.ones(1)
    made.note = 1
    return made


def _hooked():
    made = torch.ones(1, requires_grad=True)
    made.register_hook(lambda grad: grad)
    return made


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: torch.eye(2).to_sparse(), r"\.to_dense\(\)"),
        (lambda: torch.empty(2, device="meta"), r"\.cpu\(\)"),
        (lambda: torch.ones(2, requires_grad=True) * 2, r"\.detach\(\)"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj(), r"\.resolve_conj\(\)"),
        (lambda: torch.ones(2, dtype=torch.complex64).conj().imag, r"\.resolve_neg\(\)"),
        (lambda: torch.ones(1).expand(5), r"\.contiguous\(\)"),
        (lambda: torch.empty(2, dtype=torch.bits8), "dtype"),
        (lambda: torch.bits8, "dtype"),
        (lambda: torch.device("vulkan"), "device"),
        (lambda: torch.ones(1).as_subclass(Mine), "subclass"),
        (_marked, "note"),
        (_hooked, "hooks"),
        (lambda: torch.nn.Linear(2, 2), r"\.state_dict\(\)"),
    ],
)
def test_what_does_not_travel(make, said):
    with pytest.raises(PayloadError, match=said) as caught:
        families.serialize([make()], FAMILIES)
    assert caught.value.rule == "families.cannot-serialize"


def sent(x):
    header, frames = families.serialize(x, FAMILIES)
    return header, [bytes(frame) for frame in frames]


def refused(header, frames):
    with pytest.raises(SafeserError) as caught:
        families.deserialize(header, frames, GRANT, limits=LIMITS)
    return caught.value.rule


@pytest.mark.parametrize(
    "changed",
    [
        {"dtype": "bits8"},
        {"dtype": "quint8"},
        {"dtype": "__class__"},
        {"dtype": "float64"},
        {"shape": [7]},
        {"shape": [1 << 62, 0]},
        {"shape": [-1, -6]},
        {"shape": [1] * 65},
        {"order": [0, 0]},
        {"order": [1]},
        {"order": [0, 2]},
        {"order": [0.0, 1]},
        {"requires_grad": 1},
        {"parameter": None},
        {"dtype": "int32", "requires_grad": True},
    ],
)
def test_forged_headers(changed):
    header, frames = sent(torch.zeros(2, 3))
    header["sub-header"].update(changed)
    assert refused(header, frames).startswith("families.")


def test_forged_flags():
    header, _ = sent(torch.zeros(3, dtype=torch.bool))
    assert refused(header, [b"\x00\x01\x02"]) == "families.content"
    odd = torch.tensor([0, 2], dtype=torch.uint8).view(torch.bool)
    assert through(odd).view(torch.uint8).tolist() == [0, 1]


def test_forged_gradients():
    weight = torch.ones(3, requires_grad=True)
    weight.sum().backward()
    for grad in (
        torch.ones(2),
        torch.ones(3, dtype=torch.float64),
        [1],
        torch.nn.Parameter(weight),
    ):
        header, frames = sent(weight)
        inner, own = sent(grad)
        header["sub-headers"], header["frame-lengths"] = [inner], [len(own)]
        assert refused(header, [frames[0], *own]) == "families.child-type"
    header, frames = sent(weight)
    header["sub-header"]["requires_grad"] = False
    assert refused(header, frames) == "families.child-type"
    header["sub-headers"] *= 2
    header["frame-lengths"] *= 2
    assert refused(header, [*frames, frames[1]]) == "families.child-count"


def test_modules_never_arrive():
    header = {"serializer": "dask", "type": "torch.nn:Module", "sub-header": {}}
    assert refused(header, []) == "families.type"


class Model(torch.nn.Module):
    """A module of the user's own."""


def test_modules_of_ones_own_are_refused_with_advice():
    with pytest.raises(PayloadError, match=r"\.state_dict\(\)"):
        families.serialize([Model()], FAMILIES)


def use(x):
    repr(x)
    if isinstance(x, torch.Tensor) and x.numel() < 1 << 16:
        x.clone()
        x.tolist()
        (x == x).sum()
        x.detach().reshape(-1).contiguous()


@pytest.mark.parametrize(
    "x",
    [torch.zeros(2, 3).T, torch.ones(2, dtype=torch.bool), torch.Size([2]), torch.device("cpu")],
)
def test_mutated(x):
    assert mutate_all(x, use)[0] > 20
