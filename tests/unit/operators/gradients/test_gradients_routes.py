"""Every route to per-sample gradients against one backward pass a row in float64."""

from __future__ import annotations

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn

from operators.gradients import per_sample_gradients
from operators.gradients.kernel import choose_route, in_chunks, select_parameters
from operators.gradients.layers import Layers, evaluating
from operators.models import Standardize
from tests.unit.operators.gradients.test_gradients import data

Floats = NDArray[np.float32]
ACTIVATIONS = [nn.ReLU, lambda: nn.ReLU(inplace=True), nn.Tanh, nn.GELU, nn.Sigmoid, nn.Softplus]


class Encoder(nn.Module):
    """Rows of 24 numbers as 4 tokens of 6, one transformer layer, mean over tokens, a head."""

    def __init__(self, classes: int = 3, pad: bool = False) -> None:
        super().__init__()
        self.embed = nn.Linear(6, 8)
        self.place = nn.Parameter(torch.randn(4, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.head = nn.Linear(8, classes)
        self.pad = pad

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.reshape(-1, 4, 6)) + self.place
        mask = (x.reshape(-1, 4, 6)[:, :, 0] > 0.8) if self.pad else None
        return self.head(self.layer(tokens, src_key_padding_mask=mask).mean(dim=1))


class Bag(nn.Module):
    """Rows of 24 token ids kept as floats; one embedding for all, shared with the head's weight if tied."""

    def __init__(self, tied: bool) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.mix = nn.Linear(5, 5, bias=False)
        self.head = nn.Linear(5, 7)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(self.embed(x.long().abs() % 7))).mean(dim=1))


class Mixer(nn.Module):
    """Subtracts the batch's mean outside any layer."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x - x.mean(dim=0))


class StubbornNorm(nn.BatchNorm1d):
    """Stays in train mode whatever it is told, as some fine-tuning code has it."""

    def train(self, mode: bool = True) -> StubbornNorm:
        return super().train(True)


def loop(model: nn.Module, X: Floats, y: NDArray[np.int64], names: list[str]) -> NDArray[np.float64]:
    model = copy.deepcopy(model).double().eval()
    parameters = [dict(model.named_parameters())[name] for name in names]
    rows = []
    for row, label in zip(torch.tensor(X).double(), torch.tensor(y), strict=True):
        loss = nn.functional.cross_entropy(model(row[None]), label[None])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]).numpy())
    return np.stack(rows)


def check(got: Floats, expected: NDArray[np.float64]) -> None:
    norms = np.linalg.norm(expected, axis=1)
    assert got.shape == expected.shape
    assert (np.linalg.norm(got - expected, axis=1) <= 1e-5 * norms + 1e-7).all()


@st.composite
def perceptrons(draw: st.DrawFn) -> tuple[nn.Module, int, int, str | None]:
    torch.manual_seed(draw(st.integers(0, 99)))
    widths = draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    classes = draw(st.integers(2, 5))
    between = st.sampled_from(["", "norm", "batch", "drop", "flat", "nested"])
    layers: list[nn.Module] = [Standardize(widths[0])] if draw(st.booleans()) else []
    for wide, narrow in pairwise(widths):
        part: list[nn.Module] = [nn.Linear(wide, narrow, bias=draw(st.booleans()))]
        extra = draw(between)
        part += [nn.LayerNorm(narrow)] if extra == "norm" else []
        part += [nn.BatchNorm1d(narrow)] if extra == "batch" else []
        part += [nn.Dropout(0.5)] if extra == "drop" else []
        part += [nn.Flatten(), nn.Identity()] if extra == "flat" else []
        part += [draw(st.sampled_from(ACTIVATIONS))()]
        part[0].requires_grad_(draw(st.integers(0, 3)) > 0)
        layers += [nn.Sequential(*part)] if extra == "nested" else part
    model = nn.Sequential(*layers, nn.Linear(widths[-1], classes, bias=draw(st.booleans())))
    return model, widths[0], classes, draw(st.sampled_from([None, "weight", rf"^{len(layers)}\."]))


@given(perceptrons(), st.integers(1, 9), st.integers(1, 10), st.sampled_from(["auto", "layers", "func"]))
def test_routes_agree(drawn: tuple[nn.Module, int, int, str | None], n: int, chunk: int, route: str) -> None:
    model, d, classes, pattern = drawn
    X, y = data(n, d, classes, seed=n)
    names = list(select_parameters(model, pattern))
    kept = X.copy()
    got = per_sample_gradients(model, X, y, parameters=pattern, chunk_size=chunk, route=route)
    check(got, loop(model, X, y, names))
    np.testing.assert_array_equal(X, kept)


@pytest.mark.parametrize("route", ["auto", "layers", "func"])
@pytest.mark.parametrize("pattern", [None, "head", r"layer\.linear2|head", "self_attn", "norm|place"])
def test_transformer(route: str, pattern: str | None) -> None:
    torch.manual_seed(0)
    model = Encoder()
    X, y = data(6, 24, 3)
    got = per_sample_gradients(model, X, y, parameters=pattern, chunk_size=4, route=route)
    check(got, loop(model, X, y, list(select_parameters(model, pattern))))


def test_named_tensors_go_to_what_is_above() -> None:
    torch.manual_seed(0)
    model = Encoder(pad=True)
    X, y = data(6, 24, 3)
    check(per_sample_gradients(model, X, y), loop(model, X, y, list(select_parameters(model, None))))


@pytest.mark.parametrize("tied", [False, True])
def test_embedding(tied: bool) -> None:
    torch.manual_seed(0)
    model = Bag(tied)
    X = np.random.default_rng(0).integers(0, 7, (5, 24)).astype(np.float32)
    y = np.arange(5)
    check(
        per_sample_gradients(model, X, y, route="layers"),
        loop(model, X, y, list(select_parameters(model, None))),
    )


def test_backpropagation_stops_below_the_lowest_chosen_layer() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).eval()
    seen: list[bool] = []
    model[1].register_forward_hook(lambda module, args, out: seen.append(out.requires_grad))
    model[3].register_forward_hook(lambda module, args, out: seen.append(out.requires_grad))
    route = Layers(model, select_parameters(model, "^2|^4"), torch.randn(2, 3))
    seen.clear()
    found = route(torch.randn(5, 3), torch.zeros(5, dtype=torch.long))
    assert seen == [False, True]
    assert len(found) == 4
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_route_that_does_not_apply_says_why() -> None:
    class Outside(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(x @ self.head.weight)
            return out

    X, y = data(4, 4, 4)
    with pytest.raises(ValueError, match=r"'layers' does not suit this model.*'head\.weight'.*route='auto'"):
        per_sample_gradients(Outside(), X, y, route="layers")
    model = Outside()
    check(per_sample_gradients(model, X, y), loop(model, X, y, ["head.weight", "head.bias"]))


@pytest.mark.parametrize(
    ("model", "culprit"),
    [
        (
            nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5, track_running_stats=False), nn.Linear(5, 2)),
            r"layer '1' \(BatchNorm1d\)",
        ),
        (
            nn.Sequential(nn.Linear(5, 5), nn.Sequential(StubbornNorm(5)), nn.Linear(5, 2)),
            r"layer '1\.0' \(StubbornNorm\)",
        ),
        (nn.Sequential(nn.Linear(5, 2), nn.Softmax(dim=0)), r"layer '1' \(Softmax\)"),
        (Mixer(), "layer 'head'|outside the model's layers"),
    ],
)
def test_a_model_that_mixes_rows_is_refused(model: nn.Module, culprit: str) -> None:
    X, y = data(6, 5, 2)
    model.train()
    with pytest.raises(ValueError, match=f"(?:{culprit}).* mixes the rows"):
        per_sample_gradients(model, X, y)
    assert model.training
    X[1] = X[0]  # then the third row is the first that differs
    with pytest.raises(ValueError, match="mixes the rows"):
        per_sample_gradients(model, X, y)


@pytest.mark.parametrize("norm", [nn.InstanceNorm1d(3), nn.GroupNorm(1, 3), nn.BatchNorm1d(3)])
def test_normalisation_within_a_row_is_fine(norm: nn.Module) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Unflatten(1, (3, 2)), norm, nn.Flatten(), nn.Linear(6, 2))
    X, y = data(6, 6, 2)
    check(per_sample_gradients(model, X, y), loop(model, X, y, list(select_parameters(model, None))))


def test_memory_that_runs_out_halves_the_chunk() -> None:
    done: list[tuple[int, int]] = []

    def fill(part: slice) -> None:
        if part.stop - part.start > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        done.append((part.start, part.stop))

    in_chunks(fill, 8, 20)
    assert done == [(0, 3), (3, 6), (6, 8)]

    def never(part: slice) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(torch.OutOfMemoryError) as caught:
        in_chunks(never, 8, 20)
    assert "fewer parameters" in caught.value.__notes__[0]


def test_a_route_that_runs_out_of_memory_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    X, y = data(21, 4, 2)
    expected = per_sample_gradients(model, X, y)
    whole = Layers.__call__

    def small(self: Layers, x: Tensor, labels: Tensor) -> object:
        if len(x) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(self, x, labels)

    monkeypatch.setattr(Layers, "__call__", small)
    np.testing.assert_allclose(per_sample_gradients(model, X, y, chunk_size=16), expected, atol=1e-6)


def test_layers_is_chosen_for_common_models() -> None:
    for model, d in ((nn.Sequential(nn.Linear(4, 2)), 4), (Encoder(), 24), (Bag(False), 24)):
        with evaluating(model):
            route = choose_route(model, select_parameters(model, None), torch.randn(2, d))
        assert isinstance(route, Layers)
