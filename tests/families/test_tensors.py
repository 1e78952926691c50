"""PyTorch's tensors, where it is installed: forged ones are refused, and advice is the call."""

import collections

import numpy as np
import pytest

from safeser import families
from tests.samples.typed import (
    FAMILIES,
    GRANT,
    lying,
    refused,
    replaced,
    sent,
    swapped,
    through,
    typed,
    unsent,
)

torch = pytest.importorskip("torch")  # too large for every development environment


def test_nothing_is_copied():
    x = torch.arange(100.0, dtype=torch.bfloat16).reshape(10, 10).T
    header, (frame,) = families.serialize(x, FAMILIES)
    assert np.frombuffer(frame, "u1").ctypes.data == x.data_ptr()
    buffer = bytearray(frame)
    got = families.deserialize(header, [buffer], GRANT)
    assert got.data_ptr() == np.frombuffer(buffer, "u1").ctypes.data
    got[0, 0] = 7
    assert bytes(buffer) != bytes(frame)


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


class Model(torch.nn.Module):
    """A module of the user's own."""


def test_layouts_are_kept():
    x = torch.arange(24.0).reshape(2, 3, 4)
    turned = x.unsqueeze(0).to(memory_format=torch.channels_last)
    for made in (x.permute(2, 1, 0), x.permute(1, 0, 2), turned):
        assert through(made, frozen=False).stride() == made.stride()
    for made in (x[:, ::2], x[..., 1], x[:, :0], torch.zeros(1, 3)[:, 1:]):
        assert through(made, frozen=False).is_contiguous()


def test_state_dicts_can_be_loaded():
    model, other = (
        torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)) for _ in range(2)
    )
    got = through(model.state_dict())
    assert type(got._metadata) is collections.OrderedDict
    assert str(other.load_state_dict(got)) == "<All keys matched successfully>"


UNSENT = [
    (lambda: torch.eye(2).to_sparse(), ".to_dense()"),
    (lambda: torch.empty(2, device="meta"), ".cpu()"),
    (lambda: torch.ones(2, requires_grad=True) * 2, ".detach()"),
    (lambda: torch.ones(2, dtype=torch.complex64).conj(), ".resolve_conj()"),
    (lambda: torch.ones(2, dtype=torch.complex64).conj().imag, ".resolve_neg()"),
    (lambda: torch.ones(1).expand(5), ".contiguous()"),
    (lambda: torch.empty(2, dtype=torch.bits8), "dtype"), (lambda: torch.bits8, "dtype"),
    (lambda: torch.device("vulkan"), "device"),
    (lambda: torch.ones(1).as_subclass(Mine), "subclass"), (_marked, "note"), (_hooked, "hooks"),
    (lambda: torch.nn.Linear(2, 2), ".state_dict()"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "said"), [*UNSENT, (Model, ".state_dict()")])
def test_what_does_not_travel(make, said):
    assert said in unsent([make()])


CHANGED = [
    {"dtype": "bits8"}, {"dtype": "quint8"}, {"dtype": "__class__"}, {"dtype": "float64"},
    {"shape": [7]}, {"shape": [1 << 62, 0]}, {"shape": [-1, -6]}, {"shape": [1] * 65},
    {"order": [0, 0]}, {"order": [1]}, {"order": [0, 2]}, {"order": [0.0, 1]}, {"requires_grad": 1},
    {"parameter": None}, {"dtype": "int32", "requires_grad": True},
]  # fmt: skip


@pytest.mark.parametrize("changed", CHANGED)
def test_forged_headers(changed):
    header, frames = sent(torch.zeros(2, 3))
    header["sub-header"].update(changed)
    assert refused(header, frames).startswith("families.")


def test_forged_flags():
    flags = torch.zeros(3, dtype=torch.bool)
    assert refused(*swapped(flags, 0, b"\x00\x01\x02")) == "families.content"
    odd = torch.tensor([0, 2], dtype=torch.uint8).view(torch.bool)
    assert through(odd).view(torch.uint8).tolist() == [0, 1]


def test_forged_gradients():
    weight = torch.ones(3, requires_grad=True)
    weight.sum().backward()
    parameter = torch.nn.Parameter(weight)
    for grad in (torch.ones(2), torch.ones(3, dtype=torch.float64), [1], parameter):
        assert refused(*replaced(weight, 0, grad)) == "families.child-type"
    header, frames = lying(weight, "requires_grad", to=False)
    assert refused(header, frames) == "families.child-type"
    header["sub-headers"] *= 2
    header["frame-lengths"] *= 2
    assert refused(header, [*frames, frames[1]]) == "families.child-count"


def test_modules_never_arrive():
    assert refused(*typed("torch.nn:Module")) == "families.type"
