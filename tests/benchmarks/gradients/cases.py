"""The models whose per-sample gradients are timed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from tests.benchmarks.gradients.peers import Make


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        parts = (f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in self._projections())
        return self.out(nn.functional.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))

    def _projections(self) -> tuple[nn.Module, ...]:
        return self.query, self.key, self.value


class Transformer(nn.Module):
    """One layer, D 128, 4 heads, 512 hidden, over 64 tokens; mean; head."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm1, self.norm2 = Attention(128, 4), nn.LayerNorm(128), nn.LayerNorm(128)
        self.wide, self.narrow, self.head = nn.Linear(128, 512), nn.Linear(512, 128), nn.Linear(128, 2)

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.reshape(-1, 64, 128)
        tokens = self.norm1(tokens + self.attention(tokens))
        tokens = self.norm2(tokens + self.narrow(torch.relu(self.wide(tokens))))
        return self.head(tokens.mean(dim=1))


def mlp() -> nn.Module:
    """16-50-50-50-2, as in the GRASP paper's COMPAS experiment."""
    layers: list[nn.Module] = []
    for before, after in pairwise([16, 50, 50, 50]):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(50, 2))


@dataclass(frozen=True)
class Case:
    """n rows of d numbers through a model of p parameters; chunk: rows at once where chunks are used."""

    name: str
    make: Make
    n: int
    d: int
    chunk: int
    has_bar: bool = True


CASES = (
    Case("MLP 16-50-50-50-2", mlp, 4096, 16, 1024),
    Case("softmax regression, d 2048", lambda: nn.Sequential(nn.Linear(2048, 2)), 4096, 2048, 1024),
    Case("transformer layer, 64 tokens", Transformer, 128, 64 * 128, 32, has_bar=False),
)
