"""Probe training: against independent solvers, and the same bytes for any number of workers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from operators.base import OperatorError, Resources
from operators.communicator import SLOTS, SingleProcess, Slots
from operators.models import ModelSpec, build, load, save
from operators.models.linear import standard_deviations
from operators.models.storage import DESCRIPTION, WEIGHTS, load_linear
from operators.probe import Settings, Trained, minibatch, predict, train
from operators.probe.census import Census, take_census
from operators.probe.job import open_predictor, train_into
from operators.probe.kernel import partial_sums_on
from operators.probe.logistic import partial_sums
from operators.probe.minibatch import cut, fit_minibatch
from operators.probe.rows import Rows
from tests.on_arrays import train_on_arrays
from tests.unit.communicators import Board, Member, train_together

HERE = __name__
Floats = NDArray[np.float32]


class NormNet(nn.Module):
    """Batch norm (running statistics), dropout (randomness) and a frozen layer."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(n_features, 8).requires_grad_(False)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(8, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.drop(torch.relu(self.norm(self.frozen(x)))))


def all_frozen(n_features: int, n_classes: int) -> nn.Module:
    return nn.Linear(n_features, n_classes).requires_grad_(False)


def rows(n: int, d: int = 4, classes: int = 3, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    X = rng.normal(size=(n, d)) * np.logspace(-1, 1, d) + 3
    X[:, 0] += 0.1 * y
    return Rows(X.astype(np.float32), y, rng.uniform(0.1, 2, n))


def deal(whole: Rows, sizes: Sequence[int]) -> list[Rows]:
    """Shards of the given sizes."""
    ends = np.cumsum(sizes)
    return [whole.take(slice(int(end - size), int(end))) for size, end in zip(sizes, ends, strict=True)]


def spec(model: str = "logistic", *, d: int = 4, classes: int = 3, standardize: bool = True) -> ModelSpec:
    return ModelSpec(model=model, hidden=(6,), n_features=d, n_classes=classes, standardize=standardize)


def state(trained: Trained[nn.Module]) -> dict[str, Tensor]:
    return trained.model.state_dict()


def same_bytes(a: Trained[nn.Module], b: Trained[nn.Module]) -> bool:
    left, right = state(a), state(b)
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_logistic_equals_scikit_learn(classes: int, standardize: bool, weighted: bool) -> None:
    data = rows(200, classes=classes)
    weight = data.weight if weighted else np.ones(200)
    fitted = train_on_arrays(
        data.X,
        data.y,
        spec=spec(classes=classes, standardize=standardize),
        settings=Settings(l2=0.05),
        sample_weight=weight if weighted else None,
    )
    assert fitted.converged
    Z = data.X.astype(np.float64)
    if standardize:
        Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
    reference = LogisticRegression(C=1 / (0.05 * weight.sum()), tol=1e-12, solver="newton-cg", max_iter=1000)
    reference.fit(Z, data.y, sample_weight=weight)
    coefficients, intercepts = reference.coef_, reference.intercept_
    if classes == 2:
        # Two-class scikit-learn fits the difference d of two logits; ours splits it evenly as -d/2, d/2,
        # which is penalised half as much: compare with C doubled.
        reference.set_params(C=2 / (0.05 * weight.sum())).fit(Z, data.y, sample_weight=weight)
        coefficients = np.stack([-reference.coef_[0] / 2, reference.coef_[0] / 2])
        intercepts = np.array([-reference.intercept_[0] / 2, reference.intercept_[0] / 2])
    np.testing.assert_allclose(state(fitted)["head.weight"], coefficients, atol=1e-5)
    np.testing.assert_allclose(state(fitted)["head.bias"], intercepts, atol=1e-5)
    log_p = Z @ coefficients.T + intercepts
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    losses = -log_p[np.arange(200), data.y]
    assert fitted.train_loss == pytest.approx(np.average(losses, weights=weight), abs=1e-5)
    right = log_p.argmax(axis=1) == data.y
    assert fitted.train_accuracy == pytest.approx(np.average(right, weights=weight), abs=1e-12)


@pytest.mark.parametrize("scaled", [True, False])
def test_partial_sums_have_the_right_gradient(scaled: bool) -> None:
    data = rows(30)
    scale = (data.X.mean(axis=0, dtype=np.float64), data.X.std(axis=0, dtype=np.float64)) if scaled else None
    theta = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    got = torch.from_numpy(partial_sums(data, theta.numpy(), scale))
    torch.testing.assert_close(
        torch.from_numpy(partial_sums_on(torch.device("cpu"), data, theta.numpy(), scale)), got
    )
    theta.requires_grad_()
    z = torch.tensor(data.X).double()
    if scale:
        z = (z - torch.from_numpy(scale[0])) / torch.from_numpy(scale[1])
    logits = z @ theta[:, :-1].T + theta[:, -1]
    losses = nn.functional.cross_entropy(logits, torch.tensor(data.y), reduction="none")
    loss = torch.tensor(data.weight) @ losses
    loss.backward()
    assert theta.grad is not None
    torch.testing.assert_close(got[0], loss.detach())
    torch.testing.assert_close(got[1:].view(3, 5), theta.grad)


@pytest.mark.parametrize("blocks", [(), (1, 3)])
@pytest.mark.parametrize("standardize", [True, False])
def test_linear_models_in_numpy_and_torch_are_the_same(
    standardize: bool, blocks: tuple[int, ...], tmp_path: Path
) -> None:
    data = rows(300)
    described = spec(standardize=standardize).model_copy(update={"blocks": blocks if standardize else ()})
    train_into(tmp_path, described, [data], Settings(), 0, Resources())
    prediction, loss = open_predictor(tmp_path, Resources())(data.X, data.y)
    module = load(tmp_path)
    by_torch, loss_by_torch = predict(module, data.X, data.y)
    assert np.array_equal(prediction, by_torch)
    np.testing.assert_allclose(loss, loss_by_torch, rtol=1e-5)
    save(module, described, tmp_path / "again")
    assert (tmp_path / "again" / WEIGHTS).read_bytes() == (tmp_path / WEIGHTS).read_bytes()


def train_again(folder: Path) -> Path:
    train_into(folder, spec(), [rows(50)], Settings(), 0, Resources())
    return folder


def test_a_damaged_linear_model_is_named(tmp_path: Path) -> None:
    train_into(tmp_path, spec(), [rows(50)], Settings(), 0, Resources())
    (tmp_path / DESCRIPTION).write_text(spec(d=3).model_dump_json())
    with pytest.raises(OperatorError, match=r"does not hold the weights of model 'logistic'.*\(3, 4\)"):
        load_linear(tmp_path)
    halves = {name: value.bfloat16() for name, value in load(train_again(tmp_path)).state_dict().items()}
    save_file(halves, tmp_path / WEIGHTS)
    with pytest.raises(OperatorError, match=r"does not hold the weights.*bfloat16"):
        load_linear(tmp_path)
    (tmp_path / WEIGHTS).unlink()
    with pytest.raises(OperatorError, match="is missing"):
        load_linear(tmp_path)


def test_the_default_probe_needs_no_torch(tmp_path: Path) -> None:
    code = f"""
import sys
import numpy as np
from pathlib import Path
from operators.base import Resources
from operators.models.spec import ModelSpec
from operators.probe.job import open_predictor, train_into
from operators.probe.rows import Rows
from operators.probe.settings import Settings
X, y = np.eye(8, 3, dtype=np.float32), np.arange(8) % 2
spec = ModelSpec(n_features=3, n_classes=2)
train_into(Path({str(tmp_path)!r}), spec, [Rows(X, y, np.ones(8))], Settings(), 0, Resources())
open_predictor(Path({str(tmp_path)!r}), Resources())(X, y)
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("model", ["logistic", "mlp", f"{HERE}:NormNet"])
@pytest.mark.parametrize("sizes", [[20, 0, 7, 31, 12], [3, 5, 4, 9, 6, 2, 8, 7, 10, 1]])
def test_any_number_of_workers_gives_the_same_bytes(model: str, sizes: list[int]) -> None:
    # Batch norm refuses a piece of one row, so its slots get more rows.
    shards = deal(rows(sum(sizes)), sizes) if "Norm" not in model else [rows(24, seed=i) for i in sizes]
    options = Settings(epochs=3, batch_size=30, lr=0.01)

    def fit(communicator: Member | SingleProcess) -> Trained[nn.Module]:
        return train(spec(model), shards, settings=options, seed=5, communicator=communicator)

    alone = fit(SingleProcess())
    for workers in (2, 3, min(SLOTS, len(sizes))):
        for member in train_together(workers, fit):
            assert same_bytes(alone, member)
            assert (member.train_loss, member.n_rows) == (alone.train_loss, alone.n_rows)


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_shards_are_only_a_partition(model: str) -> None:
    whole = rows(90)
    options = Settings(epochs=1, batch_size=90, lr=1e-3)
    one = train(spec(model), [whole], settings=options)
    five = train(spec(model), deal(whole, [10, 30, 0, 25, 25]), settings=options)
    for name, value in state(one).items():
        torch.testing.assert_close(value, state(five)[name], atol=1e-5, rtol=1e-5)


def test_one_step_of_adam_is_torch_s() -> None:
    data = rows(64)
    fitted = train_on_arrays(
        data.X,
        data.y,
        spec=spec("mlp", standardize=False),
        settings=Settings(epochs=1, batch_size=64, lr=0.01, l2=0.1),
        sample_weight=data.weight,
        random_state=3,
    )
    model = build(spec("mlp", standardize=False), seed=3)
    decay = [{"params": [p], "weight_decay": 0.1 * (p.ndim > 1)} for p in model.parameters()]
    optimiser = torch.optim.Adam(decay, lr=0.01)
    losses = nn.functional.cross_entropy(model(torch.tensor(data.X)), torch.tensor(data.y), reduction="none")
    weight = torch.tensor(data.weight, dtype=torch.float32)
    loss = weight @ losses / weight.sum()
    loss.backward()
    optimiser.step()
    assert fitted.loss_curve == [pytest.approx(loss.item(), rel=1e-5)]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(state(fitted)[name], value, atol=1e-6, rtol=1e-4)


@given(sizes=st.lists(st.integers(0, 9), max_size=6), steps=st.integers(1, 12))
def test_cut_uses_every_row_once(sizes: list[int], steps: int) -> None:
    n = sum(sizes)
    windows = deal(rows(n), sizes)
    pieces = list(cut(iter(windows), n, steps))
    lengths = [len(piece) for piece in pieces]
    assert len(pieces) == steps
    assert max(lengths) - min(lengths) <= 1
    assert np.array_equal(np.concatenate([piece.weight for piece in pieces]), rows(n).weight)


def test_every_epoch_has_an_order_of_its_own() -> None:
    """Eight epochs of 64 rows: by chance two orders agree once in 64! draws."""
    orders: list[tuple[float, ...]] = []

    class Recorder(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            orders.append(tuple(x[:, 0].tolist()))
            return super().forward(x)

    data = rows(64)
    shards: list[Rows] = [data]
    slots = Slots(SingleProcess(), 1)
    options = Settings(epochs=8, batch_size=64)
    fit_minibatch(Recorder(4, 3), shards, slots, Census((64,), float(data.weight.sum())), options, seed=5)
    assert len(set(orders)) == len(orders) == 8
    assert {tuple(sorted(order)) for order in orders} == {tuple(sorted(data.X[:, 0].tolist()))}


@pytest.mark.slow
def test_large_shards_in_the_order_of_their_classes_are_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minibatch, "WINDOW", 500)
    rng = np.random.default_rng(0)
    centres, y = rng.normal(size=(16, 10)) * 1.2, np.repeat(np.arange(16), 500)
    X = (centres[y] + rng.normal(size=(8000, 10))).astype(np.float32)
    options = Settings(l2=0, epochs=10, lr=0.01)
    wide = ModelSpec(
        model="mlp", hidden=(50, 50), standardize=True, blocks=(10,), n_features=10, n_classes=16
    )
    accuracy = []
    for order in (np.arange(8000), rng.permutation(8000)):
        shards = [Rows(X[part], y[part], np.ones(len(part))) for part in np.array_split(order, 16)]
        accuracy.append(train(wide, shards, settings=options).train_accuracy)
    assert accuracy[0] == pytest.approx(accuracy[1], abs=0.02)


def test_windows_use_every_row_once_and_hold_no_more_than_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minibatch, "WINDOW", 64)
    shards = deal(rows(700), [300, 5, 0, 250, 145])
    pieces = minibatch._pieces(shards, range(5), 700)
    windows = list(minibatch._shuffled_windows(shards, pieces, np.random.default_rng(0)))
    assert max(map(len, windows)) < 300 + 64  # at most a window, or the rows of the largest shard
    assert max(sum(piece.shard == shard for piece in pieces) for shard in range(5)) == minibatch.PIECES
    weights = np.concatenate([window.weight for window in windows])
    assert sorted(weights) == sorted(rows(700).weight)
    assert all(piece.rows(shards).X.base is None for piece in pieces if piece.step > 1)


def test_the_number_of_workers_does_not_matter_to_large_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minibatch, "WINDOW", 16)
    shards, options = deal(rows(120), [40, 3, 50, 27]), Settings(epochs=2, batch_size=16)
    one = train(spec("mlp"), shards, settings=options)
    for trained in train_together(
        2, lambda communicator: train(spec("mlp"), shards, settings=options, communicator=communicator)
    ):
        assert same_bytes(one, trained)


def test_seeds_decide_and_nothing_else_is_touched() -> None:
    data = rows(60)
    options = Settings(epochs=2, batch_size=16)
    before, threads = torch.get_rng_state(), torch.get_num_threads()

    def fit(seed: int) -> Trained[nn.Module]:
        return train_on_arrays(data.X, data.y, spec=spec("mlp"), settings=options, random_state=seed)

    assert same_bytes(fit(1), fit(1))
    assert not same_bytes(fit(1), fit(2))
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    assert not fit(1).model.training


def test_mlp_learns_what_no_linear_model_can() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 2)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int64)
    options = Settings(epochs=60, batch_size=32, lr=0.02, l2=0.0)
    mlp = ModelSpec(model="mlp", hidden=(16,), n_features=2, n_classes=2)
    fitted = train_on_arrays(X, y, spec=mlp, settings=options)
    assert fitted.loss_curve[-1] < 0.5 * fitted.loss_curve[0]
    assert fitted.train_accuracy > 0.9
    assert train_on_arrays(X, y, settings=Settings(l2=0.0)).train_accuracy < 0.7
    prediction, loss = predict(fitted.model, X, y)
    assert (prediction == y).mean() == pytest.approx(fitted.train_accuracy)
    assert loss.mean() == pytest.approx(fitted.train_loss, rel=1e-6)


def test_census_is_exact_beside_large_means() -> None:
    whole = Rows(np.float32(1e5) + rows(50).X, rows(50).y, rows(50).weight)
    census = take_census(spec(), deal(whole, [20, 0, 30]), Slots(SingleProcess(), 3))
    assert census.mean is not None
    assert census.std is not None
    double = whole.X.astype(np.float64)
    np.testing.assert_allclose(census.mean, double.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(census.std, double.std(axis=0), rtol=1e-9)


def test_a_column_of_two_neighbouring_numbers_is_standardised() -> None:
    """Unix times that differ by 128 s counted as constant, since float32 has no number between them."""
    whole = rows(50)
    X = np.column_stack([np.full(50, 0.1), np.full(50, 1.7e9), np.full(50, 1.7e9)]).astype(np.float32)
    X[::5, 2] += 128
    narrow = Rows(X, whole.y, whole.weight)
    census = take_census(spec(d=3), deal(narrow, [20, 0, 30]), Slots(SingleProcess(), 3))
    assert census.mean is not None
    assert census.std is not None
    assert standard_deviations(census.mean, census.std, ()).tolist() == pytest.approx([1, 1, 51.2])


def test_bad_rows() -> None:
    good = rows(9)
    empty = good.take(slice(0, 0))
    with pytest.raises(OperatorError, match="no shards"):
        train(spec(), [])
    with pytest.raises(OperatorError, match="0 valid rows"):
        train(spec(), [empty])
    with pytest.raises(OperatorError, match="weights sum to 0"):
        train_on_arrays(good.X, good.y, spec=spec(), sample_weight=np.zeros(9))
    with pytest.raises(OperatorError, match="Shard 1 has the class index 3, but there are 3"):
        train(spec(), [good, Rows(good.X, good.y + 1, good.weight)])
    with pytest.raises(OperatorError, match="Shard 0 has rows of 4 features"):
        train(spec(d=5), [good])
    with pytest.raises(OperatorError, match="no trainable parameter"):
        train(spec(f"{HERE}:all_frozen"), [good])
    with pytest.raises(OperatorError, match=r"diverged.*Lower lr"):
        train_on_arrays(good.X, good.y, spec=spec("mlp"), settings=Settings(lr=1e30, epochs=3))
    with pytest.raises(ValueError, match="at most 2 can share"):
        Slots(Member(0, Board(3)), 2)


def test_unconverged_says_so() -> None:
    data = rows(200)
    assert not train_on_arrays(data.X, data.y, settings=Settings(l2=0.001, max_iterations=1)).converged
