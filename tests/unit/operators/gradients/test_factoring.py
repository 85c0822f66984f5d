"""Factored gradients of a model against its flat ones."""

import numpy as np
import pytest
import torch
from torch import nn

from operators.dbscan import DBSCAN
from operators.factored import unpack
from operators.gradients import per_sample_gradients
from operators.gradients.factoring import packed_gradients
from operators.gradients.kernel import rows_at_once


def mlp(seed=0, width=7, n_classes=3):
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 6, bias=False), nn.Tanh(), nn.Linear(6, n_classes)
    )


def data(n=50, seed=0, n_classes=3):
    random = np.random.default_rng(seed)
    return random.normal(size=(n, 5)).astype(np.float32), random.integers(0, n_classes, n)


@pytest.mark.parametrize("parameters", [None, "^4", "weight", "bias", r"^(0\.bias|4\.weight)$", "^2"])
@pytest.mark.parametrize("chunk_size", [None, 7])
def test_laid_out_flat_they_are_the_per_sample_gradients(parameters, chunk_size):
    model, (X, y) = mlp(), data()
    flat = per_sample_gradients(model, X, y, parameters=parameters)
    found = unpack(*packed_gradients(model, X, y, parameters=parameters, chunk_size=chunk_size))
    assert found.shape == flat.shape
    np.testing.assert_allclose(found.flat(), flat, atol=1e-5 * np.linalg.norm(flat, axis=1).max())


def test_a_gpu_has_larger_chunks():
    """512 MiB of numbers, as `per_sample_gradients` has them."""
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert [rows_at_once(None, size, gpu) for size in (10, 2**20, 2**30)] == [16_384, 128, 1]
    assert [rows_at_once(None, size, cpu) for size in (10, 2**20, 2**30)] == [4096, 8, 1]
    assert rows_at_once(3, 2**30, gpu) == 3


def test_factors_leave_a_gpu_as_gradients_do(monkeypatch):
    copied = []

    def copy(values, out):
        copied.append(tuple(values.shape))
        out.copy_(values)

    expected, _ = packed_gradients(mlp(), *data())
    monkeypatch.setattr("operators.gradients.factoring.copy_to_host", copy)
    found, _ = packed_gradients(mlp(), *data())
    np.testing.assert_array_equal(found, expected)
    assert copied == [(50, 5), (50, 7), (50, 7), (50, 6), (50, 6), (50, 3)]


def test_packing_keeps_every_layer():
    packed, parts = packed_gradients(mlp(), *data(), parameters="weight")
    assert [part.path for part in parts] == ["0", "2", "4"]
    assert packed.shape == (50, (5 + 7) + (7 + 6) + (6 + 3))
    assert [layer.bias for layer in unpack(packed, parts).layers] == [False] * 3


def test_groups_of_a_wide_head_without_its_flat_gradients():
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 30))
    X, y = data(200, 1, 30)
    factored = unpack(*packed_gradients(model, X, y, parameters="^2"))
    flat = per_sample_gradients(model, X, y, parameters="^2")
    assert flat.nbytes > 10 * factored.nbytes
    for eps in (0.3, 0.6, 0.9):
        np.testing.assert_array_equal(
            DBSCAN(eps, 5, "centered_cosine").fit(factored).labels_,
            DBSCAN(eps, 5, "centered_cosine").fit(flat.astype(np.float64)).labels_,
        )


def test_a_parameter_without_factors_is_named():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 6), nn.LayerNorm(6), nn.Linear(6, 3))
    with pytest.raises(ValueError, match=r"'1\.weight', '1\.bias' are not products"):
        packed_gradients(model, *data())
    packed_gradients(model, *data(), parameters="^[02]")


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match="no rows"):
        packed_gradients(mlp(), *data(0))
