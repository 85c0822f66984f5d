"""The training loop and its rules against plain torch, cvxpy and definitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from engine.core.errors import InputError
from engine.recipe.trainers import TrainParams, parse_params
from engine.training.data.rows import Dataset, dataset_of_arrays, group_indices, group_names
from engine.training.fit.kernel import TrainingOutcome, fit
from engine.training.fit.sampling import Draw, balance, pieces, plan_epoch
from engine.training.rules import Batch, Chi2Doro, CvarDoro, GroupDro
from operators.base import OperatorError
from operators.communicator import Communicator, SingleProcess, Slots
from operators.metrics import cvar
from operators.models import build
from tests.unit.communicators import train_together

HERE = "tests.unit.engine.training.fit.test_training"
METHODS: list[dict[str, Any]] = [
    {"trainer": "erm"},
    {"trainer": "gdro", "adjustment": 1.0, "noise": "erm"},
    {"trainer": "gdro", "sampling": "shuffle", "keep": "best"},
    {"trainer": "erm_plain"},
    {"trainer": "erm_class_balanced"},
    {"trainer": "cvar_doro", "eps": 0.05},
    {"trainer": "chi2_dro", "optimizer": "adam"},
    {"trainer": "jtt", "first_epochs": 1, "upweight": 3},
    {"trainer": "resample"},
    {"trainer": "dfr", "held_out": 0.5},
    {"trainer": "boosted_cvar", "rounds": 4, "round_epochs": 1, "trim": 0.02},
    {"trainer": "boosted_cvar", "rounds": 4, "round_epochs": 1, "boosting": "lp"},
    {"trainer": "boosted_cvar", "rounds": 4, "round_epochs": 1, "boosting": "regularized_lp"},
]


def data(n: int = 150, n_shards: int = 5, seed: int = 0, noise: Any = "own_group") -> Dataset:
    """Two classes, a cue that agrees with the label in 85 % of rows, some noise, some validation rows."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    agrees = rng.random(n) < 0.85
    X = np.column_stack([np.where(agrees, y, 1 - y), y]) * [2.0, 1.0] + rng.normal(0, 0.6, (n, 2))
    groups = np.where(rng.random(n) < 0.1, -1, 2 * y + agrees)
    split = np.where(rng.random(n) < 0.3, "validation", "train")
    weight = rng.uniform(0.5, 2, n)
    return dataset_of_arrays(X, y, groups=groups, weight=weight, split=split, noise=noise, n_shards=n_shards)


def params(**values: Any) -> TrainParams:
    small = {"model": "mlp", "hidden": [6], "epochs": 2, "batch_size": 32, "slots": 3, "lr": 0.05}
    return parse_params({**small, **values})


def same(a: TrainingOutcome, b: TrainingOutcome) -> bool:
    """Equal to the bit."""
    return (
        len(a.states) == len(b.states)
        and all(torch.equal(x[k], y[k]) for x, y in zip(a.states, b.states, strict=True) for k in x)
        and np.array_equal(a.selection_losses, b.selection_losses)
        and a.curve == b.curve
    )


@pytest.mark.parametrize("values", METHODS, ids=lambda v: "-".join(map(str, v.values())))
def test_any_number_of_workers_gives_the_same_bytes(values: dict[str, Any]) -> None:
    rows, options = data(noise=values.get("noise", "own_group")), params(**values)

    def train(communicator: Communicator) -> TrainingOutcome:
        return fit(rows, options, seed=3, communicator=communicator)

    alone = train(SingleProcess())
    for workers in (2, 3):
        assert all(same(alone, member) for member in train_together(workers, train))
    assert not same(alone, fit(rows, options, seed=4))


def plain_loop(rows: Dataset, options: TrainParams, loss_of: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Full-batch descent as anybody would write it; ``loss_of`` takes the losses (n,)."""
    from engine.training.fit.kernel import model_spec

    every = rows.train[0]
    model = build(model_spec(options, rows), 7)
    mean, std = every.X.mean(0), every.X.astype(np.float64).std(0)
    model.get_submodule("standardize").set(mean, std)  # type: ignore[operator]
    weights = [p for p in model.parameters() if p.ndim > 1]
    biases = [p for p in model.parameters() if p.ndim == 1]
    optimiser = torch.optim.SGD(
        [{"params": weights, "weight_decay": options.weight_decay}, {"params": biases}],
        lr=options.lr,
        momentum=options.momentum,
    )
    X, y = torch.tensor(every.X), torch.tensor(every.y)
    for _ in range(options.epochs):
        optimiser.zero_grad()
        loss_of(nn.functional.cross_entropy(model(X), y, reduction="none")).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return {f"model.{name}": value for name, value in model.state_dict().items()}


def check_full_batch(values: dict[str, Any], loss_of: Callable[[Tensor], Tensor]) -> None:
    rows = data(n_shards=1)
    options = params(**values, epochs=25, batch_size=1000, slots=1, weight_decay=0.01)
    (state,) = fit(rows, options, seed=7).states
    for name, value in plain_loop(rows, options, loss_of).items():
        torch.testing.assert_close(state[name], value, atol=2e-5, rtol=2e-5)


def test_erm_is_the_weighted_mean() -> None:
    weight = torch.tensor(data(n_shards=1).train[0].weight, dtype=torch.float32)
    check_full_batch({"trainer": "erm"}, lambda loss: (weight * loss).sum() / weight.sum())
    check_full_batch({"trainer": "erm", "weights": False}, torch.mean)


@pytest.mark.parametrize("adjustment", [0.0, 2.0])
def test_gdro_is_algorithm_1(adjustment: float) -> None:
    rows = data(n_shards=1)
    group = torch.tensor(rows.train[0].group)
    weight = torch.tensor(rows.train[0].weight, dtype=torch.float32)
    q = torch.full((rows.n_groups,), 1 / rows.n_groups)

    def loss_of(loss: Tensor) -> Tensor:
        nonlocal q
        losses = []
        for g in range(rows.n_groups):
            mine = group == g
            mean = (weight[mine] * loss[mine]).sum() / weight[mine].sum()
            losses.append(mean + adjustment / mine.sum() ** 0.5)
        stacked = torch.stack(losses)
        q = q * torch.exp(0.3 * stacked.detach())
        q = q / q.sum()
        return q @ stacked

    assert rows.n_groups == 6
    how = {"trainer": "gdro", "sampling": "shuffle", "step_size": 0.3, "adjustment": adjustment}
    check_full_batch(how, loss_of)


def test_gdro_takes_rows_of_no_group_by_their_share() -> None:
    rule = GroupDro([4, 0, 2], step_size=1e-9)
    batch = Batch(np.ones(8), np.ones(8), np.array([0, 0, 0, 0, 2, 2, -1, -1]), 8)
    expected = np.array([0.75 / 2 / 4] * 4 + [0.75 / 2 / 2] * 2 + [0.25 / 2] * 2)
    np.testing.assert_allclose(rule.weigh(batch), expected, rtol=1e-8)
    assert rule.q[1] == 0
    with pytest.raises(ValueError, match="at least one group"):
        GroupDro([0, 0], 0.1)


def test_gdro_forgets_no_group_after_a_loss_without_bound() -> None:
    """A squared error of 1e6 once left the other group a weight of exactly 0, and the next one NaN."""
    rule, group = GroupDro([2, 2, 0], step_size=0.01), np.array([0, 0, 1, 1])
    for first, second, expected in ((1e6, 0, [1, 0, 0]), (0, 2e6, [0, 1, 0]), (1e6, 0, [0.5, 0.5, 0])):
        losses = np.array([first, first, second, second], float)
        rule.weigh(Batch(losses, np.ones(4), group, 4))
        np.testing.assert_allclose(rule.q, expected, rtol=1e-9)


losses = st.lists(st.floats(0, 8), min_size=3, max_size=40)


def batch_of(values: list[float], weight: NDArray[np.float64] | None = None) -> Batch:
    n = len(values)
    return Batch(np.array(values), np.ones(n) if weight is None else weight, np.zeros(n, np.int64), n)


@given(values=losses, alpha=st.floats(0.05, 1), trim=st.integers(0, 2))
def test_cvar_doro_is_the_cvar_of_what_is_left(values: list[float], alpha: float, trim: int) -> None:
    alpha = max(alpha, 1 / (len(values) - trim))
    counts = CvarDoro(alpha, trim / len(values)).weigh(batch_of(values))
    assert counts.sum() == pytest.approx(1)
    assert (counts >= 0).all()
    kept = np.sort(values)[: len(values) - trim]
    assert counts @ np.array(values) == pytest.approx(cvar(kept, alpha), abs=1e-9)


def test_weights_count_like_repeated_rows() -> None:
    rng = np.random.default_rng(0)
    values, times = rng.uniform(0, 3, 12), rng.integers(1, 4, 12)
    for rule in (CvarDoro(0.3, 0.1), Chi2Doro(0.3, 0.1)):
        once = rule.weigh(batch_of(values.tolist(), times.astype(float)))
        repeated = rule.weigh(batch_of(np.repeat(values, times).tolist()))
        place = np.repeat(np.arange(12), times)
        np.testing.assert_allclose(once, np.bincount(place, repeated), atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_chi2_dro_is_the_worst_distribution_of_the_ball(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.exponential(1, 20).round(seed % 2 + 1)
    alpha = rng.uniform(0.1, 0.9)
    counts = Chi2Doro(alpha, 0.0).weigh(batch_of(values.tolist()))
    ratio = cvxpy.Variable(20, nonneg=True)
    ball = [cvxpy.sum(ratio) == 20, cvxpy.sum_squares(ratio - 1) / 20 <= (1 / alpha - 1) ** 2]
    best = cvxpy.Problem(cvxpy.Maximize(values @ ratio / 20), ball).solve(solver="CLARABEL")
    assert counts @ values == pytest.approx(best, abs=1e-5)
    assert counts.sum() == pytest.approx(1)
    assert 20 * (counts**2).sum() - 1 <= (1 / alpha - 1) ** 2 + 1e-6


@given(values=losses, alpha=st.floats(0.01, 1), eps=st.floats(0, 0.5))
def test_chi2_dro_of_any_losses(values: list[float], alpha: float, eps: float) -> None:
    counts = Chi2Doro(alpha, eps).weigh(batch_of(values))
    assert counts.sum() == pytest.approx(1)
    assert (counts >= 0).all()


def test_rows_without_weight_are_no_fault() -> None:
    for rule in (CvarDoro(0.3, 0.1), Chi2Doro(0.3, 0.1)):
        assert not rule.weigh(batch_of([1.0, 2.0, 3.0], np.zeros(3))).any()


def taken(rows: Dataset, draw: Draw, seed: int = 0) -> list[int]:
    slots = Slots(SingleProcess(), len(rows.train))
    sizes = [sum(len(rows.train[i]) for i in slots.shards(s)) for s in range(slots.count)]
    epoch = plan_epoch(draw, slots, sizes, 16, (seed, 0, 0))
    found = []
    for slot in range(slots.count):
        for step, (piece, _) in enumerate(pieces(rows.train, slots, epoch, slot)):
            assert len(piece) == epoch.piece(slot, step)
            found += piece.row_id.tolist()
    assert len(found) == sum(map(epoch.batch, range(epoch.steps)))
    return found


def test_an_epoch_takes_every_row_as_often_as_it_is_told() -> None:
    rows = data()
    every = sorted(i for shard in range(5) for i in rows.train[shard].row_id.tolist())
    assert sorted(taken(rows, Draw())) == every
    slots = Slots(SingleProcess(), 5)
    ids = {s: np.concatenate([rows.train[i].row_id for i in slots.shards(s)]) for s in range(slots.count)}
    times = {slot: own % 3 for slot, own in ids.items()}
    assert sorted(taken(rows, Draw(times=times))) == sorted(i for i in every for _ in range(i % 3))


def test_drawing_by_weight_is_with_replacement_and_unbiased() -> None:
    rows = data()
    slots = Slots(SingleProcess(), 5)
    weights = {s: np.concatenate([rows.train[i].weight for i in slots.shards(s)]) ** 3 for s in range(5)}
    ids = {s: np.concatenate([rows.train[i].row_id for i in slots.shards(s)]) for s in range(5)}
    counts: NDArray[np.int64] = np.zeros(150, np.int64)
    for seed in range(300):
        counts += np.bincount(taken(rows, Draw(weights=weights), seed), minlength=150)
    n = sum(map(len, ids.values()))
    expected = np.zeros(150)
    for slot in range(5):
        expected[ids[slot]] = weights[slot] * 300 * n / sum(w.sum() for w in weights.values())
    assert counts.sum() == 300 * n
    assert (
        (counts - expected) ** 2 / np.maximum(expected, 1)
    ).sum() < 2 * n  # chi-square with about n degrees


def test_balanced_groups_weigh_the_same_and_rows_of_no_group_what_they_did() -> None:
    rng = np.random.default_rng(0)
    group, weight = rng.integers(-1, 4, 200), rng.uniform(0.1, 3, 200)
    group[group == 2] = 3
    mass = np.bincount(group[group >= 0], weight[group >= 0], minlength=5)
    balanced = weight * balance(mass)[group]
    np.testing.assert_array_equal(balanced[group < 0], weight[group < 0])
    assert balanced.sum() == pytest.approx(weight.sum())
    for g in (0, 1, 3):
        mine = group == g
        assert balanced[mine].sum() == pytest.approx(mass.sum() / 3)
        np.testing.assert_allclose(balanced[mine] / balanced[mine].sum(), weight[mine] / weight[mine].sum())


def test_groups_and_their_noise() -> None:
    group, y = np.array([5, -1, 2, -1]), np.array([0, 0, 1, 1])
    assert group_names([-1, 5, 2], 2, "own_group") == (2, 5, -1, -2)
    assert group_indices(group, y, (2, 5, -1, -2), "own_group").tolist() == [1, 2, 0, 3]
    assert group_names([-1, 5, 2], 2, "erm") == (2, 5)
    assert group_indices(group, y, (2, 5), "erm").tolist() == [1, -1, 0, -1]
    with pytest.raises(ValueError, match="group 5 is none of the 1"):
        group_indices(group, y, (2,), "erm")
    assert not (data(noise="drop").train[0].group < 0).any()


class Fails(nn.Module):
    """A linear model; with a file that names an epoch, breaks off once in it."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(n_features, n_classes)
        self.norm = nn.BatchNorm1d(n_features)
        self.drop = nn.Dropout(0.2)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        if self.training and len(x) > 2:
            Fails.total += 1
            if Fails.total == Fails.at:
                raise KeyboardInterrupt
        out: Tensor = self.head(self.drop(self.norm(x)))
        return out

    total, at = 0, -1


@pytest.mark.parametrize("values", METHODS, ids=lambda v: "-".join(map(str, v.values())))
def test_a_broken_training_goes_on_to_the_same_model(values: dict[str, Any], tmp_path: Path) -> None:
    rows = data(noise=values.get("noise", "own_group"))
    options = params(**values, model=f"{HERE}:Fails", checkpoint_every=1)
    Fails.total, Fails.at = 0, -1
    unbroken = fit(rows, options, folder=tmp_path / "unbroken")
    whole = Fails.total
    for at in (whole * 6 // 10, whole * 8 // 10, whole - 1):
        folder = tmp_path / str(at)
        Fails.total, Fails.at = 0, at
        with pytest.raises(KeyboardInterrupt):
            fit(rows, options, folder=folder)
        assert (folder / "checkpoints" / "LATEST").exists()
        Fails.at = -1
        resumed = fit(rows, options, folder=folder)
        assert Fails.total - at < whole
        assert same(unbroken, resumed)
        for path in (tmp_path / "unbroken" / "models").iterdir():
            assert path.read_bytes() == (folder / "models" / path.name).read_bytes()
        assert not (folder / "checkpoints").exists()


def test_a_checkpoint_of_other_rows_is_not_gone_on_with(tmp_path: Path) -> None:
    options = params(trainer="erm", model=f"{HERE}:Fails", checkpoint_every=1)
    Fails.total, Fails.at = 0, 10
    with pytest.raises(KeyboardInterrupt):
        fit(data(), options, folder=tmp_path, content="a")
    Fails.at = -1
    other = fit(data(), options, folder=tmp_path, content="b")
    assert same(other, fit(data(), options, folder=tmp_path / "new", content="b"))


class Poisoned(nn.Module):
    """Gives no number for rows whose first feature is large."""

    def __init__(self, n_features: int, n_classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(n_features, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x[:, :1] > 50, torch.nan, 1.0) * self.head(x)


@pytest.mark.parametrize("trainer", ["erm", "gdro", "cvar_doro"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_loss_that_is_no_number_stops_with_its_rows(trainer: str, workers: int) -> None:
    X = np.zeros((60, 1))
    X[[7, 31, 45]] = 99
    rows = dataset_of_arrays(X, np.arange(60) % 2, n_shards=4)
    how: dict[str, Any] = {"sampling": "shuffle", "batch_size": 1000, "standardize": False}
    options = params(trainer=trainer, model=f"{HERE}:Poisoned", **how)

    def train(communicator: Communicator) -> TrainingOutcome:
        return fit(rows, options, communicator=communicator)

    with pytest.raises(OperatorError, match=r"loss of 3 of 60 rows .* row_id: 7, 31, 45"):
        train_together(workers, train)


def test_divergence_is_told_apart(tmp_path: Path) -> None:
    options = params(trainer="erm", lr=1e30, epochs=20)
    with pytest.raises(OperatorError, match=r"lower train.lr"):
        fit(data(), options)


def test_nothing_to_train_on() -> None:
    rows = dataset_of_arrays(np.zeros((4, 1)), [0, 1, 0, 1], split=["test"] * 4)
    with pytest.raises(OperatorError, match="0 rows of split train"):
        fit(rows, params(trainer="erm"))
    noise = dataset_of_arrays(np.zeros((4, 1)), [0, 1, 0, 1], groups=[-1] * 4, noise="erm")
    with pytest.raises(OperatorError, match="no train row is in a group"):
        fit(noise, params(trainer="gdro"))
    with pytest.raises(OperatorError, match="no validation rows to choose an epoch by"):
        fit(dataset_of_arrays(np.zeros((4, 1)), [0, 1, 0, 1]), params(trainer="erm", keep="best"))


def test_keep_best_is_the_best_epoch() -> None:
    fitted = fit(data(400), params(trainer="gdro", keep="best", epochs=8, lr=0.3))
    best = max(note["worst_group_accuracy"] for note in fitted.curve)
    first = next(note["epoch"] for note in fitted.curve if note["worst_group_accuracy"] == best)
    assert fitted.best_epoch == first


@pytest.mark.parametrize("workers", [1, 2])
def test_a_logistic_erm_is_solved_to_its_optimum(workers: int) -> None:
    """Equal to scikit-learn's solution, on any number of workers."""
    rows = data(600, n_shards=4)
    options = parse_params({"trainer": "erm", "weight_decay": 0.01})
    assert options.uses_lbfgs

    def train(communicator: Communicator) -> TrainingOutcome:
        return fit(rows, options, communicator=communicator)

    (state,) = train_together(workers, train)[0].states
    parts = [rows.train[shard] for shard in range(4)]
    X, y, weight = (np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "y", "weight"))
    scaled = (X - X.mean(0)) / X.std(0)
    model = LogisticRegression(C=1 / 0.01, tol=1e-10, max_iter=10_000)
    model.fit(scaled, y, sample_weight=weight / weight.sum())
    ours = state["model.head.weight"][1] - state["model.head.weight"][0]
    # A softmax regression of two classes has two weight vectors, so that its penalty is half as strong.
    expected = LogisticRegression(C=2 / 0.01, tol=1e-10, max_iter=10_000)
    expected.fit(scaled, y, sample_weight=weight / weight.sum())
    np.testing.assert_allclose(ours.numpy(), expected.coef_[0], rtol=1e-3)
    assert not np.allclose(ours.numpy(), model.coef_[0], rtol=1e-3)


def test_statistical_steps_have_one_share_for_each_worker(tmp_path: Path) -> None:
    """Alone that is a training of one slot; three workers end near it, with bytes of their own."""
    values = {"trainer": "gdro", "epochs": 20, "batch_size": 128, "lr": 0.05}
    params = parse_params({**values, "reproducible": "statistical"})
    rows = data(1500)

    def weights(found: TrainingOutcome) -> NDArray[np.float32]:
        return found.states[0]["model.head.weight"].numpy()

    alone = fit(rows, params)
    assert weights(alone).tolist() == weights(fit(rows, parse_params({**values, "slots": 1}))).tolist()

    def train(communicator: Communicator) -> TrainingOutcome:
        return fit(rows, params, communicator=communicator)

    three = train_together(3, train)
    assert len({weights(found).tobytes() for found in three}) == 1
    assert weights(three[0]).tolist() != weights(alone).tolist()
    np.testing.assert_allclose(weights(three[0]), weights(alone), atol=0.3)
    assert three[0].curve[-1]["loss"] == pytest.approx(alone.curve[-1]["loss"], rel=0.1)
    with pytest.raises(InputError, match="slots fixes the shares of a step"):
        parse_params({**values, "reproducible": "statistical", "slots": 2})


def test_a_statistical_training_is_continued_by_as_many_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of another number of workers has other shares, and is not continued."""
    from engine.training.fit import epochs

    params = parse_params(
        {"trainer": "gdro", "epochs": 4, "checkpoint_every": 1, "reproducible": "statistical"}
    )
    true_epoch, calls = epochs.run_epoch, [0]

    def failing(*arguments: Any) -> float:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return true_epoch(*arguments)

    def interrupted(folder: Path) -> None:
        calls[0] = 0
        monkeypatch.setattr(epochs, "run_epoch", failing)
        with pytest.raises(KeyboardInterrupt):
            fit(data(), params, folder=folder, content="rows")
        monkeypatch.setattr(epochs, "run_epoch", counted)

    def counted(*arguments: Any) -> float:
        calls[0] += 1
        return true_epoch(*arguments)

    interrupted(tmp_path / "one")
    calls[0] = 0
    resumed = fit(data(), params, folder=tmp_path / "one", content="rows")
    assert (calls[0], resumed.curve) == (2, fit(data(), params).curve)
    interrupted(tmp_path / "two")
    calls[0] = 0

    def train(communicator: Communicator) -> TrainingOutcome:
        return fit(data(), params, folder=tmp_path / "two", content="rows", communicator=communicator)

    train_together(2, train)
    assert calls[0] == 2 * 4
