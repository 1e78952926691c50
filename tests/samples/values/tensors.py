"""PyTorch's tensors, and what a state dict holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator


def examples() -> dict[str, object]:
    import torch

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
    import torch

    tensors = value.values() if isinstance(value, dict) else (value,)
    for tensor in [item for item in tensors if isinstance(item, torch.Tensor)][:4]:
        for name in ("clone", "tolist", "sum", "nonzero", "contiguous", "numpy", "double", "any"):
            yield lambda tensor=tensor, name=name: getattr(tensor, name)()  # type: ignore[misc]  # both are bound
        yield lambda tensor=tensor: tensor @ tensor.T
        yield lambda tensor=tensor: tensor[tensor != 0]
        yield lambda tensor=tensor: torch.cat([tensor, tensor])
    if isinstance(value, torch.Size):
        yield value.numel
