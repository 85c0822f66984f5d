"""Per-sample gradients against a loop of backward passes; projections; bad input."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from operators.gradients import Projection, per_sample_gradients
from operators.gradients.kernel import add_in_order, choose_route, select_parameters
from operators.gradients.layers import Layers
from operators.gradients.projection import Method
from operators.models import ModelSpec, build

HERE = __name__
Floats = NDArray[np.float32]


class ConvNet(nn.Module):
    """Rows of 16 numbers as 4 x 4 images, with batch norm, dropout and a scalar parameter."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 2)
        self.norm = nn.BatchNorm2d(3)
        self.drop = nn.Dropout(0.5)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.head = nn.Linear(27, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.norm(self.conv(x.reshape(-1, 1, 4, 4))))
        return self.head(self.drop(self.scale * hidden).flatten(1))


class Tokens(nn.Module):
    """Rows of 16 numbers as 4 tokens of 4."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.mix = nn.Linear(4, 5)
        self.head = nn.Linear(5, n_classes, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.mix(x.reshape(-1, 4, 4))).mean(dim=1))


class Wrapped(nn.Module):
    """One linear layer, used in a way that ``wrong`` names: only "plain" has the closed form."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.head = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "twice":
            return self.head(torch.tanh(self.head(x)))
        if self.how == "weight before":
            return self.head(x @ self.head.weight)
        out: Tensor = self.head(x)
        if self.how == "tanh after":
            return torch.tanh(out)
        return out.mul_(2) if self.how == "in place after" else out


def loop(model: nn.Module, X: Floats, y: NDArray[np.int64], names: list[str]) -> Floats:
    """The reference: one backward pass a row."""
    model.eval()
    parameters = [dict(model.named_parameters())[name] for name in names]
    rows = []
    for row, label in zip(torch.from_numpy(X), torch.from_numpy(y), strict=True):
        loss = nn.functional.cross_entropy(model(row[None]), label[None])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters)]).numpy())
    return np.stack(rows)


def data(n: int, d: int, classes: int, seed: int = 0) -> tuple[Floats, NDArray[np.int64]]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)).astype(np.float32), rng.integers(0, classes, n)


def model_of(kind: str, d: int, classes: int) -> nn.Module:
    spec = ModelSpec(model=kind, hidden=(6, 5), n_features=d, n_classes=classes, standardize=kind != "mlp")
    return build(spec, seed=1)


@pytest.mark.parametrize("chunk_size", [None, 3])
@pytest.mark.parametrize(
    ("kind", "classes", "parameters"),
    [
        ("logistic", 2, None),
        ("logistic", 5, None),
        ("logistic", 3, "weight"),
        ("logistic", 3, "bias"),
        ("mlp", 3, None),
        ("mlp", 3, r"head\."),
        ("mlp", 3, "hidden1|head.bias"),
        (f"{HERE}:ConvNet", 3, None),
        (f"{HERE}:ConvNet", 3, "head"),
        (f"{HERE}:ConvNet", 3, "scale"),
    ],
)
def test_equals_one_backward_pass_per_row(
    kind: str, classes: int, parameters: str | None, chunk_size: int | None
) -> None:
    X, y = data(10, 16, classes)
    model = model_of(kind, 16, classes)
    names = list(select_parameters(model, parameters))
    got = per_sample_gradients(model, X, y, parameters=parameters, chunk_size=chunk_size)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, loop(model, X, y, names), atol=1e-5)


@pytest.mark.parametrize("how", ["plain", "twice", "weight before", "tanh after", "in place after"])
@pytest.mark.parametrize("frozen", [False, True])
def test_one_layer_used_in_any_way(how: str, frozen: bool) -> None:
    X, y = data(6, 4, 4)
    model = Wrapped(how)
    model.head.bias.requires_grad_(not frozen)
    selected = select_parameters(model, None)
    # The trial pass finds a weight that is also used outside its layer; "twice" goes to the model itself.
    route = choose_route(model, selected, torch.from_numpy(X[:2]))
    assert isinstance(route, Layers) == (how != "weight before")
    assert model.head.bias.requires_grad != frozen
    got = per_sample_gradients(model, X, y)
    np.testing.assert_allclose(got, loop(model, X, y, list(selected)), atol=1e-5)


def test_tied_weights_and_hooks() -> None:
    tied = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    tied[2].weight = tied[0].weight
    hooked = nn.Sequential(nn.Linear(4, 4))
    hooked[0].register_forward_hook(lambda module, args, out: 3 * out)
    for model in (tied, hooked):
        X, y = data(5, 4, 4)
        got = per_sample_gradients(model, X, y, parameters=r"^0\.")
        np.testing.assert_allclose(got, loop(model, X, y, ["0.weight", "0.bias"]), atol=1e-5)


def test_leaves_the_model_as_it_was() -> None:
    X, y = data(6, 16, 3)
    model = ConvNet(16, 3).train()
    model.norm.eval()
    model.conv.weight.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    per_sample_gradients(model, X, y)
    assert model.training
    assert model.drop.training
    assert not model.norm.training
    assert not model.conv.weight.requires_grad
    assert model.head.weight.requires_grad
    assert all(p.grad is None for p in model.parameters())
    assert not model.head._forward_hooks
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_frozen_parameters_have_no_columns() -> None:
    X, y = data(4, 16, 3)
    model = model_of("mlp", 16, 3)
    model.get_submodule("hidden1").requires_grad_(False)
    names = ["hidden2.weight", "hidden2.bias", "head.weight", "head.bias"]
    np.testing.assert_allclose(per_sample_gradients(model, X, y), loop(model, X, y, names), atol=1e-5)


@pytest.mark.parametrize("kind", ["logistic", "mlp"])
def test_inputs_of_any_kind(kind: str) -> None:
    X, y = data(7, 5, 3)
    model = model_of(kind, 5, 3)
    expected = per_sample_gradients(model, X, y)
    X.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (per_sample_gradients(model, X, y.tolist()) == expected).all()
    tensors = per_sample_gradients(model, torch.tensor(X), torch.from_numpy(y.astype(np.int32)))
    assert (tensors == expected).all()
    assert per_sample_gradients(model, X[:0], y[:0]).shape == (0, expected.shape[1])
    double = per_sample_gradients(model_of(kind, 5, 3).double(), X, y)
    assert double.dtype == np.float32
    np.testing.assert_allclose(double, expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["logistic", "mlp", f"{HERE}:ConvNet"])
def test_projection_is_the_gradient_times_the_matrix(kind: str) -> None:
    X, y = data(11, 16, 300 if kind == "logistic" else 3)
    model = model_of(kind, 16, 300 if kind == "logistic" else 3)
    projection = Projection(dim=20, seed=5)
    flat = per_sample_gradients(model, X, y).astype(np.float64)
    sizes = [p.numel() for p in model.parameters()]
    matrix = np.concatenate(
        [piece for k, size in enumerate(sizes) for _, piece in projection.pieces(k, size)], dtype=np.float64
    )
    assert matrix.shape == (flat.shape[1], 20)
    for chunk_size in (None, 4, 11):
        got = per_sample_gradients(model, X, y, projection=projection, chunk_size=chunk_size)
        np.testing.assert_allclose(got, flat @ matrix, atol=1e-5)
    other = per_sample_gradients(model, X, y, projection=Projection(dim=20, seed=6))
    assert np.abs(other - flat @ matrix).max() > 1e-3


@pytest.mark.parametrize("method", ["gaussian", "tensor_sketch"])
@pytest.mark.parametrize("kind", ["mlp", f"{HERE}:ConvNet", f"{HERE}:Tokens"])
def test_projection_keeps_inner_products(method: Method, kind: str) -> None:
    X, y = data(40, 16, 3)
    model = model_of(kind, 16, 3)
    flat = per_sample_gradients(model, X, y).astype(np.float64)
    gram = flat @ flat.T
    norms = np.sqrt(np.outer(np.diag(gram), np.diag(gram)))
    errors = []
    for seed in range(5):
        low = per_sample_gradients(model, X, y, projection=Projection(400, seed, method)).astype(np.float64)
        errors.append((low @ low.T - gram) / norms)
    # The bounds of the docstring; over five independent projections the mean shrinks.
    deviation = ((2 if method == "gaussian" else 11) / 400) ** 0.5
    assert np.abs(errors).max() < 5 * deviation
    assert np.sqrt(np.mean(np.square(errors))) < deviation
    assert abs(np.mean(errors)) < 0.3 * deviation


@pytest.mark.parametrize("kind", ["logistic", f"{HERE}:Tokens"])
@pytest.mark.parametrize("dim", [8, 7])
def test_tensor_sketch_is_a_count_sketch_of_the_flat_gradient(kind: str, dim: int) -> None:
    """Entry (i, j) of a weight goes to bucket (h(i) + h'(j)) mod dim with sign s(i) s'(j)."""
    X, y = data(9, 16, 3)
    model = model_of(kind, 16, 3)
    projection = Projection(dim, 3, "tensor_sketch")
    flat = per_sample_gradients(model, X, y)
    expected, start = np.zeros((9, dim)), 0
    for number, parameter in enumerate(model.parameters()):
        places, signs = projection.buckets(number, 0, parameter.shape[0])
        if parameter.ndim == 2:
            others, more = projection.buckets(number, 1, parameter.shape[1])
            places, signs = (places[:, None] + others).ravel() % dim, (signs[:, None] * more).ravel()
        for column, (place, sign) in enumerate(zip(places, signs, strict=True), start):
            expected[:, place] += sign * flat[:, column]
        start += parameter.numel()
    for chunk_size in (None, 4):
        got = per_sample_gradients(model, X, y, projection=projection, chunk_size=chunk_size)
        np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_sketch_leaves_the_switches_of_the_process_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads compute meanwhile; the switch was left on by 15 of 20 sketches in eight threads."""
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda *given, **named: pytest.fail("changed"))
    X, y = data(9, 16, 3)
    per_sample_gradients(model_of("logistic", 16, 3), X, y, projection=Projection(8, 0, "tensor_sketch"))


class OnGpu(Tensor):
    """A tensor that says it lies on a GPU, so that the CPU runs what a GPU would."""

    is_cuda = True


def test_sums_of_a_gpu_are_those_of_index_add() -> None:
    values = torch.randn(7, 500, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    places = torch.arange(500) ** 2 % 13
    here, there = torch.zeros(7, 20, dtype=torch.float64), torch.zeros(7, 20, dtype=torch.float64)
    add_in_order(here, places, values)
    add_in_order(there, places, values.as_subclass(OnGpu))
    np.testing.assert_array_equal(here, torch.zeros_like(here).index_add_(1, places, values))
    np.testing.assert_allclose(there, here, atol=1e-12)


def test_pieces_of_the_matrix_do_not_repeat() -> None:
    pieces = [m for k in range(2) for _, m in Projection(dim=3, seed=0).pieces(k, 5000)]
    assert [len(m) for m in pieces] == [4096, 904, 4096, 904]
    assert not np.array_equal(pieces[0], pieces[2])
    assert not np.array_equal(pieces[0][:904], pieces[1])


def test_bad_input() -> None:
    X, y = data(6, 5, 3)
    model = model_of("mlp", 5, 3)
    with pytest.raises(ValueError, match=r"'encoder' matches no.*hidden1\.weight, hidden1\.bias"):
        per_sample_gradients(model, X, y, parameters="encoder")
    with pytest.raises(ValueError, match="X has 6 rows and y has 5"):
        per_sample_gradients(model, X, y[:5])
    with pytest.raises(ValueError, match=r"y\[2\] = 3, but the model has 3 logits"):
        per_sample_gradients(model, X, [0, 1, 3, 3, 0, 1])
    with pytest.raises(ValueError, match="integers"):
        per_sample_gradients(model, X, y.astype(np.float32))
    with pytest.raises(ValueError, match="chunk_size=0"):
        per_sample_gradients(model, X, y, chunk_size=0)
    with pytest.raises(ValueError, match="dim >= 1"):
        Projection(dim=0)
