"""PyTorch's tensors, and what a state dict holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch


def examples() -> dict[str, object]:
    weight = torch.nn.Parameter(torch.ones(2))
    weight.sum().backward()
    return {
        "floats": torch.arange(6.0).reshape(2, 3).T,
        "flags": torch.tensor([True, False]),
        "bfloat16": torch.ones(2, dtype=torch.bfloat16),
        "gradient": weight,
        "empty": torch.zeros(0, 3),
        "size": torch.Size([2, 3]),
        "dtype": torch.float64,
        "device": torch.device("cpu"),
        "state": torch.nn.Linear(2, 2).state_dict(),
    }


def uses(value: object) -> Iterator[Callable[[], object]]:
    tensors = value.values() if isinstance(value, dict) else (value,)
    for tensor in [item for item in tensors if isinstance(item, torch.Tensor)][:4]:
        for name in ("clone", "tolist", "sum", "nonzero", "contiguous", "numpy", "double", "any"):
            yield lambda tensor=tensor, name=name: getattr(tensor, name)()  # type: ignore[misc]  # both are bound
        yield lambda tensor=tensor: tensor @ tensor.T
        yield lambda tensor=tensor: tensor[tensor != 0]
        yield lambda tensor=tensor: torch.cat([tensor, tensor])
    if isinstance(value, torch.Size):
        yield value.numel


FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool")
COMPLEX = ("complex32", "complex64", "complex128")


def others() -> Iterator[object]:
    """Yield more honest values."""
    numbers = torch.arange(6).reshape(2, 3)
    for name in (*FLOATS, *INTEGERS, *COMPLEX):
        x = numbers.to(torch.float32 if name in FLOATS else torch.int64).to(getattr(torch, name))
        yield from (x, x[0], x[0, 1], x[:0])
    cube = torch.arange(24.0).reshape(2, 3, 4)
    yield from (cube.permute(2, 1, 0), cube.permute(1, 0, 2), cube[:, ::2], cube[..., 1])
    yield from (cube.unsqueeze(0).to(memory_format=torch.channels_last), cube[:, :0])
    yield torch.zeros(1, 3)[:, 1:]
    weight = torch.nn.Parameter(torch.ones(3))
    (weight * 2).sum().backward()
    yield from (weight, {"w": weight}, torch.ones(2, requires_grad=True))
    yield torch.nn.Parameter(torch.ones(2, dtype=torch.int64), requires_grad=False)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    yield model.state_dict()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 2)).sum().backward()
    optimizer.step()
    yield optimizer.state_dict()
    yield from (torch.bfloat16, torch.device("cuda", 1))
