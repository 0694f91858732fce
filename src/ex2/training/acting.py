"""The actor's call in a rollout."""

from __future__ import annotations

import torch
from torch import Tensor

from ex2.training.policy import Policy

Pair = tuple[Tensor, Tensor]
WARM_CALLS = 3  # before a call is captured


class Acting:
    """Observations [n, ...] and noise -> actions, and the parameters that they are drawn from.

    On a GPU the many small kernels of a call on pictures are captured as a graph for each n: updates change parameters in
    their place, so a graph sees them. (Moments that vectors are standardised by are not, and those are small.)
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.captured = policy.device.type == "cuda" and policy.pictures
        self._actor = policy.actor_now()
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Pair, Pair]] = {}

    def begin(self) -> None:
        """The policy may have changed."""
        self._actor = self.policy.actor_now()

    def __call__(self, observations: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        if not self.captured:
            return self._act(observations, noise)
        if len(observations) not in self._graphs:
            self._graphs[len(observations)] = self._capture(observations, noise)
        graph, inputs, outputs = self._graphs[len(observations)]
        inputs[0].copy_(observations)
        inputs[1].copy_(noise)
        graph.replay()
        return outputs[0].clone(), outputs[1].clone()

    def _act(self, observations: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self._actor(self.policy.see(observations))
        return self.policy.actions.sample(outputs, noise), outputs

    def _capture(self, observations: Tensor, noise: Tensor) -> tuple[torch.cuda.CUDAGraph, Pair, Pair]:
        inputs, stream = (observations.clone(), noise.clone()), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_CALLS):
                self._act(*inputs)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = self._act(*inputs)
        return graph, inputs, outputs
