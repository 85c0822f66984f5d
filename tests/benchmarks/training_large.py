"""Trainings of 130,000 rows beside a plain torch loop and scikit-learn, each to the same validation loss.

``python -m tests.benchmarks.training --large`` runs it. A method gets as many epochs as it needs to reach the
loss, which is found first; then it is timed with these epochs, from the rows in memory to the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from engine.recipe.trainers import parse_params
from engine.training.data.rows import Dataset, GroupedRows, dataset_of_arrays, join
from engine.training.fit.job import mix
from engine.training.fit.kernel import fit
from operators.arrays import Float64
from tests.benchmarks.harness import Row, bar, figure, measure, ratio

N_TRAIN, N_VALIDATION, N_FEATURES, N_SHARDS = 130_000, 30_000, 38, 8
MINORITY = 0.02
"""Share of the rows in which the spurious feature points to the other class."""
EPOCHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
LR, MOMENTUM, DECAY, STEP_SIZE = 0.01, 0.9, 1e-4, 0.01
"""Of ours, its defaults, and of the plain loop."""
WITHIN = 1.01
"""Losses up to this factor times the reference are the same."""

Predict = Callable[[NDArray[np.float32]], Float64]
"""Rows (n, d) -> probability of class 1 (n,)."""


@dataclass(frozen=True)
class Problem:
    """Rows as all methods get them, and the losses of validation rows."""

    data: Dataset
    train: GroupedRows
    validation: GroupedRows

    def losses(self, predict: Predict) -> tuple[float, float]:
        """Mean log-loss of the validation rows, and of the worst of their four groups."""
        p = predict(self.validation.X).clip(1e-15, 1 - 1e-15)
        losses = -np.log(np.where(self.validation.y == 1, p, 1 - p))
        groups = self.validation.group
        return float(losses.mean()), float(max(losses[groups == g].mean() for g in np.unique(groups)))


def problem(seed: int = 0) -> Problem:
    """Two classes; feature 0 is spurious, feature 1 follows the class weakly, the others are of some use."""
    rng = np.random.default_rng(seed)
    n = N_TRAIN + N_VALIDATION
    y = rng.integers(0, 2, n)
    breaks = rng.random(n) < MINORITY
    X = rng.normal(size=(n, N_FEATURES)).astype(np.float32)
    X += (y[:, None] - 0.5) * rng.uniform(0, 0.3, N_FEATURES)
    X[:, 0] += 3 * (np.where(breaks, 1 - y, y) - 0.5)
    X *= rng.uniform(0.1, 20, N_FEATURES)
    split = np.where(np.arange(n) % (n // N_VALIDATION) == 0, "validation", "train")
    data = dataset_of_arrays(X, y, groups=2 * y + breaks, split=split, n_shards=N_SHARDS)
    train, validation = (join(list(data.splits[name])) for name in ("train", "validation"))  # type: ignore[call-overload]
    return Problem(data, train, validation)


def ours(found: Problem, epochs: int, **values: Any) -> Predict:
    """Train by ours, with every key that is not given at its default."""
    n_rows = len(found.train)
    params = parse_params({"epochs": epochs, **values}).for_rows(n_rows)
    model = mix(fit(found.data, params), params, {})
    return lambda X: model.predict_proba(X)[:, 1]


def sgd_classifier(found: Problem, epochs: int) -> Predict:
    """Train by scikit-learn's linear model, on standardised features, with its default step sizes."""
    sgd = SGDClassifier(loss="log_loss", max_iter=epochs, tol=None, alpha=DECAY, random_state=0)
    model = make_pipeline(StandardScaler(), sgd).fit(found.train.X, found.train.y)
    return lambda X: np.asarray(model.predict_proba(X)[:, 1])


def plain_loop(found: Problem, epochs: int, *, robust: bool) -> Predict:
    """Train by a loop as one writes it for one process: ERM, or group DRO with groups equally frequent."""
    torch.manual_seed(0)
    X, y, group = (torch.from_numpy(values) for values in (found.train.X, found.train.y, found.train.group))
    mean, std = X.mean(0), X.std(0)
    X = (X - mean) / std
    model = nn.Linear(N_FEATURES, 2)
    optimiser = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)
    share = 1.0 / torch.bincount(group)[group].double()
    q = torch.full((4,), 0.25)
    n, batch = len(y), parse_params({}).for_rows(len(y)).step_rows
    for _ in range(epochs):
        order = torch.multinomial(share, n, replacement=True) if robust else torch.randperm(n)
        for start in range(0, n, batch):
            rows = order[start : start + batch]
            losses = nn.functional.cross_entropy(model(X[rows]), y[rows], reduction="none")
            q, loss = _robust(losses, group[rows], q) if robust else (q, losses.mean())
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    def predict(new: NDArray[np.float32]) -> Float64:
        with torch.no_grad():
            return torch.softmax(model((torch.from_numpy(new) - mean) / std), 1)[:, 1].double().numpy()

    return predict


def _robust(losses: Tensor, group: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return the moved weights of the groups, and the loss of a step of group DRO."""
    rows = torch.bincount(group, minlength=4)
    by_group = torch.zeros(4).index_add(0, group, losses) / rows.clamp(min=1)
    q = q * torch.exp(STEP_SIZE * by_group.detach())
    q = q / q.sum()
    return q, q @ by_group


@dataclass(frozen=True)
class Method:
    """One way to train, by the number of epochs, and which loss it makes small."""

    train: Callable[[int], Predict]
    robust: bool
    has_epochs: bool = True


def methods(found: Problem) -> dict[str, Method]:
    """All methods; the first of each kind is the plain loop, with which the others are compared."""
    gdro = partial(ours, found, trainer="gdro")
    return {
        "plain torch loop": Method(partial(plain_loop, found, robust=False), False),
        "erm (L-BFGS, the default)": Method(partial(ours, found), False, has_epochs=False),
        "erm, optimizer sgd": Method(partial(ours, found, optimizer="sgd"), False),
        "scikit-learn SGDClassifier": Method(partial(sgd_classifier, found), False),
        "plain torch loop, group DRO": Method(partial(plain_loop, found, robust=True), True),
        "gdro (exact)": Method(gdro, True),
        "gdro, reproducible: statistical": Method(partial(gdro, reproducible="statistical"), True),
    }


def compare(repeats: int) -> tuple[list[Row], list[Row]]:
    """Return the bars, and for each method its epochs, losses, and CPU seconds beside the plain loop."""
    found = problem()
    every = methods(found)
    wanted = {
        robust: WITHIN * found.losses(plain_loop(found, EPOCHS[-1], robust=robust))[robust]
        for robust in (False, True)
    }
    needed = {name: _epochs(found, method, wanted[method.robust]) for name, method in every.items()}
    timed = measure({name: partial(every[name].train, needed[name] or EPOCHS[-1]) for name in every}, repeats)
    rows, bars = [], []
    for name, method in every.items():
        mean, worst = found.losses(timed[name].result)
        plain = timed["plain torch loop, group DRO" if method.robust else "plain torch loop"].median
        rows.append(
            {
                "training": name,
                "loss wanted": f"{'worst group' if method.robust else 'mean'} {wanted[method.robust]:.4f}",
                "mean loss": f"{mean:.4f}",
                "worst group's": f"{worst:.4f}",
                "epochs": _shown(method, needed[name]),
                "CPU s": str(timed[name]),
                "an epoch, s": figure(timed[name].median / (needed[name] or EPOCHS[-1]))
                if method.has_epochs
                else "-",
                "beside plain": ratio(timed[name].median / plain),
            }
        )
    for name, most in (("erm (L-BFGS, the default)", 6.0), ("gdro (exact)", 15.0)):
        seconds = timed[name].median
        bars.append(bar(name, f"<= {most:g} s", f"{figure(seconds)} s", seconds <= most and needed[name] > 0))
    return bars, rows


def _epochs(found: Problem, method: Method, wanted: float) -> int:
    """Return the least number of epochs that reaches a loss; 0 if none of ``EPOCHS`` does."""
    tried = EPOCHS if method.has_epochs else EPOCHS[:1]
    return next((n for n in tried if found.losses(method.train(n))[method.robust] <= wanted), 0)


def _shown(method: Method, epochs: int) -> str:
    if not epochs:
        return "not reached"
    return str(epochs) if method.has_epochs else "-"
