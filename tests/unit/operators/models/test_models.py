"""Models: built from a description, stored without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from operators import columns
from operators.base import VECTOR, OperatorError
from operators.columns import numpy_to_vectors, vectors_to_numpy
from operators.models import ModelSpec, Standardize, build, load, save

HERE = __name__


class TiedNet(nn.Module):
    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(n_features, n_features, bias=False)
        self.second = nn.Linear(n_features, n_features, bias=False)
        self.second.weight = self.first.weight
        self.head = nn.LazyLinear(n_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.second(self.first(x)))


def wrong_width(n_features: int, n_classes: int) -> nn.Module:
    return nn.Linear(n_features, n_classes - 1)


def not_a_module(n_features: int, n_classes: int) -> int:
    return n_features + n_classes


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    left, right = a.state_dict(), b.state_dict()
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("logistic", ["head.weight", "head.bias"]),
        (
            "mlp",
            [f"{layer}.{kind}" for layer in ("hidden1", "hidden2", "head") for kind in ("weight", "bias")],
        ),
        (f"{HERE}:TiedNet", ["model.first.weight", "model.head.weight", "model.head.bias"]),
    ],
)
@pytest.mark.parametrize("standardize", [True, False])
def test_build_save_load(model: str, names: list[str], standardize: bool, tmp_path: Path) -> None:
    spec = ModelSpec(model=model, hidden=(7, 5), standardize=standardize, n_features=4, n_classes=2)
    net = build(spec, seed=3)
    assert [name for name, _ in net.named_parameters()] == names
    x = torch.randn(6, 4)
    assert net(x).shape == (6, 2)
    save(net, spec, tmp_path / "a")
    save(build(spec, seed=3), spec, tmp_path / "b")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()
    loaded = load(tmp_path / "a")
    assert same_weights(net, loaded)
    assert torch.equal(net.eval()(x), loaded(x))
    assert not same_weights(net, build(spec, seed=4))


def test_build_leaves_global_random_state_alone() -> None:
    before = torch.get_rng_state()
    build(ModelSpec(model="mlp", n_features=3, n_classes=2), seed=0)
    assert torch.equal(before, torch.get_rng_state())


def test_standardize_leaves_constant_columns_finite() -> None:
    layer = Standardize(3)
    layer.set(np.array([1.0, 5.0, 1e4]), np.array([2.0, 0.0, 1e-10]))
    assert layer.std.tolist() == [2.0, 1.0, 1.0]
    assert layer(torch.tensor([[3.0, 5.0, 1e4]])).tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("no_such_package.models:net", "no module named 'no_such_package'"),
        (f"{HERE}:TieNet", "Did you mean 'TiedNet'"),
        (f"{HERE}:wrong_width", r"gave \(2, 2\) instead of \(2, 3\)"),
        (f"{HERE}:not_a_module", "returned a int"),
        (f"{HERE}:same_weights", "failed with AttributeError"),
    ],
)
def test_bad_factories(model: str, text: str) -> None:
    with pytest.raises(OperatorError, match=text):
        build(ModelSpec(model=model, n_features=4, n_classes=3), seed=0)


def test_bad_model_name() -> None:
    with pytest.raises(ValidationError, match="Did you mean 'logistic'"):
        ModelSpec(model="logisitc", n_features=4, n_classes=3)


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(OperatorError, match=r"model\.json is missing"):
        load(tmp_path)
    spec = ModelSpec(n_features=4, n_classes=3)
    save(build(spec, 0), spec, tmp_path)
    (tmp_path / "model.json").write_text(ModelSpec(n_features=5, n_classes=3).model_dump_json())
    with pytest.raises(OperatorError, match="does not hold the weights"):
        load(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(OperatorError, match=r"model\.safetensors is missing"):
        load(tmp_path)


@pytest.mark.parametrize("content", [b"\xcf", b"[" * 100_000, b"[]", b"null", b'{"n_features": 1e400}'])
def test_descriptions_of_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.json").write_bytes(content)
    with pytest.raises(OperatorError, match=r"model\.json is not a description of a model") as caught:
        load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("change", [{"n_features": 10**12}, {"model": "mlp", "hidden": (10**6, 10**6)}])
def test_no_model_is_built_that_its_file_cannot_fill(
    change: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = ModelSpec(n_features=4, n_classes=3)
    save(build(spec, 0), spec, tmp_path)
    assert spec.n_weights == 15
    (tmp_path / "model.json").write_text(spec.model_copy(update=change).model_dump_json())
    monkeypatch.setattr("operators.models.building.build", lambda *_, **__: pytest.fail("built"))
    with pytest.raises(OperatorError, match=r"weights in \d+ bytes"):
        load(tmp_path)


def test_vectors_round_trip_without_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.randn(7, 3).numpy()
    column = numpy_to_vectors(matrix)
    assert column.type == VECTOR
    back = vectors_to_numpy(column)
    assert back.__array_interface__["data"][0] == matrix.__array_interface__["data"][0]
    assert (back == matrix).all()
    assert (vectors_to_numpy(column.slice(2, 4)) == matrix[2:6]).all()
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), 3).slice(1, 5)
    assert (vectors_to_numpy(fixed) == matrix[1:6]).all()
    monkeypatch.setattr(columns, "MAX_CHILD_VALUES", 7)
    split = numpy_to_vectors(matrix)
    assert split.num_chunks == 4
    assert (vectors_to_numpy(split) == matrix).all()
    assert vectors_to_numpy(numpy_to_vectors(matrix[:0])).shape == (0, 0)


@pytest.mark.parametrize(
    ("rows", "text"),
    [([[1.0, 2.0], [3.0]], "2 and then 1"), ([[1.0], None], "null"), ([[1.0], [None]], "null")],
)
def test_ragged_vectors_are_refused(rows: list[list[float | None] | None], text: str) -> None:
    with pytest.raises(OperatorError, match=text):
        vectors_to_numpy(pa.array(rows, type=pa.list_(pa.float32())))


def test_blocks_share_a_standard_deviation() -> None:
    spec = ModelSpec(n_features=4, n_classes=2, blocks=(3, 1))
    layer = build(spec, 0).get_submodule("standardize")
    layer.set(np.arange(4.0), np.array([1.0, 2.0, 2.0, 5.0]))
    np.testing.assert_allclose(layer.std, [3**0.5, 3**0.5, 3**0.5, 5.0])
    np.testing.assert_array_equal(layer.mean, torch.arange(4.0))


def test_blocks_must_be_all_features() -> None:
    with pytest.raises(ValidationError, match="blocks sum to 3, and there are 4"):
        ModelSpec(n_features=4, n_classes=2, blocks=(2, 1))


def test_a_model_beyond_the_limit_asks_for_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hidden layers of 300,000 are 360 GB, which a recipe of two lines asks of every worker."""
    spec = ModelSpec(model="mlp", n_features=4, n_classes=2, hidden=(300_000, 300_000))
    with pytest.raises(OperatorError, match=r"90,002,400,002 weights, .* ROWSIEVE_MAX_MODEL_BYTES"):
        build(spec, seed=0)
    small = ModelSpec(model="mlp", n_features=4, n_classes=2, hidden=(5,))
    build(small, seed=0)
    monkeypatch.setenv("ROWSIEVE_MAX_MODEL_BYTES", "100")
    with pytest.raises(OperatorError, match="37 weights, 148 bytes, and 100 are allowed"):
        build(small, seed=0)
