"""A training step captured as a CUDA graph: launched once instead of kernel by kernel, which is what small networks wait for.

Everything that changes from step to step must be a tensor in its place: draws are copied to where the graph reads them;
learning rates, odds and KL weights are tensors. A graph belongs to its parameters and to its optimiser; with new ones, capture
anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Loss = Callable[..., tuple[Tensor, ...]]
WARM_STEPS = 3  # before a step is captured


def uploaded(values: Sequence[Tensor], device: torch.device) -> Tensor:
    """Values of one field of several draws, stacked on the GPU; copied while it is busy with the draws before."""
    staged = torch.empty((len(values), *values[0].shape), dtype=values[0].dtype, pin_memory=True)
    torch.stack(values, out=staged)  # type: ignore[arg-type]
    return staged.to(device, non_blocking=True)


class CapturedStep:
    """Adam on `loss(*draws)`, as a graph from the fourth step on."""

    def __init__(self, drawn: tuple[Tensor, ...], loss: Loss, optimiser: torch.optim.Optimizer) -> None:
        self.inputs = tuple(value.clone() for value in drawn)
        self.loss, self.optimiser = loss, optimiser
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm = 0

    def fits(self, drawn: tuple[Tensor, ...]) -> bool:
        """Whether draws of these shapes can be replayed."""
        return [value.shape for value in drawn] == [value.shape for value in self.inputs]

    def run(self, drawn: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        for static, value in zip(self.inputs, drawn, strict=True):
            static.copy_(value)
        if self.graph is None and self.warm < WARM_STEPS:
            self.warm += 1
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                self._train()
            torch.cuda.current_stream().wait_stream(stream)
            return self.result
        if self.graph is None:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._train()
        self.graph.replay()
        return self.result

    def _train(self) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        self.result = self.loss(*self.inputs)
        self.result[0].backward()
        self.optimiser.step()
