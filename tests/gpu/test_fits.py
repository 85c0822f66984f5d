"""Models that are trained on a GPU: those of the CPU up to rounding, and the same bytes again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from engine.recipe.trainers import parse_params
from engine.training.fit import device_rows
from engine.training.fit.kernel import TrainingOutcome, fit
from operators.communicator import Distributed
from operators.gradients.factoring import packed_gradients
from operators.gradients.kernel import per_sample_gradients
from operators.gradients.projection import Projection
from operators.models import ModelSpec
from operators.probe import Settings, predict, train
from operators.probe.rows import Rows
from tests.unit.engine.training.fit.test_device_loop import STEPPED, TRAINERS, rows

pytestmark = pytest.mark.gpu
OTHERS: dict[str, dict[str, Any]] = {
    "last layer": {"trainer": "dfr"},
    "L-BFGS": {"trainer": "erm", "optimizer": "lbfgs"},
    "normal equations": {"trainer": "erm", "objective": "squared", "optimizer": "auto", "model": "linear"},
    "schedule and clip": {"trainer": "gdro", "schedule": "cosine", "warmup": 0.4, "clip": 0.1},
    "several slots": {"trainer": "gdro", "slots": 3, "model": "mlp"},
}
"""Beside those of the test of the loop."""


@pytest.fixture
def nccl(device: str) -> Iterator[Distributed]:
    backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
    torch.distributed.init_process_group(backend, store=torch.distributed.HashStore(), rank=0, world_size=1)
    yield Distributed()
    torch.distributed.destroy_process_group()


def same_bytes(a: TrainingOutcome, b: TrainingOutcome) -> bool:
    return all(
        torch.equal(value, theirs[key])
        for mine, theirs in zip(a.states, b.states, strict=True)
        for key, value in mine.items()
    )


@pytest.mark.parametrize("name", sorted({**TRAINERS, **OTHERS}))
def test_a_training_takes_the_steps_of_the_cpu(name: str, device: str) -> None:
    params = parse_params({**STEPPED, **{**TRAINERS, **OTHERS}[name]})
    expected, found = fit(rows(), params), fit(rows(), params, device=device)
    assert [note["loss"] for note in found.curve] == pytest.approx(
        [note["loss"] for note in expected.curve], rel=1e-4
    )
    for mine, theirs in zip(found.states, expected.states, strict=True):
        for key, value in theirs.items():
            torch.testing.assert_close(mine[key].cpu(), value, rtol=1e-3, atol=1e-4)
    assert same_bytes(found, fit(rows(), params, device=device))


def test_rows_that_are_sent_by_steps_give_the_same_bytes(
    device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = parse_params({**STEPPED, **TRAINERS["gdro"], "model": "mlp"})
    held = fit(rows(), params, device=device)
    monkeypatch.setattr(device_rows, "has_room", lambda *of: False)
    assert same_bytes(fit(rows(), params, device=device), held)


@pytest.mark.parametrize("name", ["gdro", "boosted_cvar", "jtt"])
def test_sums_over_nccl_give_the_same_bytes(name: str, device: str, nccl: Distributed) -> None:
    params = parse_params({**STEPPED, **TRAINERS[name]})
    assert same_bytes(
        fit(rows(), params, device=device, communicator=nccl), fit(rows(), params, device=device)
    )


def probe_rows() -> list[Rows]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 20)).astype(np.float32)
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=3000) > 0).astype(np.int64)
    weight = rng.uniform(0.2, 2, 3000)
    return [Rows(X[part], y[part], weight[part]) for part in np.array_split(np.arange(3000), 3)]


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_a_probe_is_that_of_the_cpu(model: Any, device: str) -> None:
    spec = ModelSpec(model=model, n_features=20, n_classes=2)
    settings = Settings(epochs=4)
    cpu, gpu, again = (
        train(spec, probe_rows(), settings=settings, seed=1, device=place).model
        for place in ("cpu", device, device)
    )
    X, y = probe_rows()[0].X[:50], probe_rows()[0].y[:50]
    for mine, theirs in zip(predict(gpu, X, y), predict(cpu, X, y), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-3)
    for mine, theirs in zip(gpu.parameters(), again.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_products_in_bfloat16_stay_close(model: str, device: str) -> None:
    values = {**STEPPED, **TRAINERS["gdro"], "model": model}
    exact = fit(rows(), parse_params(values), device=device)
    rounded = fit(rows(), parse_params({**values, "amp": True}), device=device)
    assert not same_bytes(exact, rounded)
    assert rounded.curve[-1]["loss"] == pytest.approx(exact.curve[-1]["loss"], rel=0.05)


@pytest.mark.parametrize("method", ["gaussian", "tensor_sketch", None])
def test_gradients_are_those_of_the_cpu(method: Any, device: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 3))
    X = np.random.default_rng(0).normal(size=(700, 20)).astype(np.float32)
    y = np.arange(700) % 3
    projection = method and Projection(64, method=method)
    expected = per_sample_gradients(model, X, y, projection=projection)
    model.to(device)
    found, again = (per_sample_gradients(model, X, y, projection=projection) for _ in range(2))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(again, found)


def test_factors_are_those_of_the_cpu(device: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 3))
    X = np.random.default_rng(0).normal(size=(700, 20)).astype(np.float32)
    y = np.arange(700) % 3
    expected, layers = packed_gradients(model, X, y)
    model.to(device)
    (found, parts), (again, _) = (packed_gradients(model, X, y) for _ in range(2))
    assert parts == layers
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(again, found)
