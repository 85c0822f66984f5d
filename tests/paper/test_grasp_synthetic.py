"""GRASP's Synthetic table (Zeng et al. 2022, tables 3 and 5), recomputed.

Feature space is deterministic: for the paper's data seed 123 the published figures must come out to
four digits. Gradient space depends on the probe, which the paper gives as 50 epochs of Adam without
its batch size or seed. Here: softmax regression with two logits on the 600 training rows, Adam with
learning rate .01 and batches of 128, so stopped before it converges. Both the data seed and the
training seed (initial weights and order of batches) vary; single runs spread by several points
(clean about .65 to .74), so the bands hold for means: over training seeds on the paper's data, and
over all. Converged L-BFGS gives .714 clean, .690 contaminated on the paper's data.

The floor "group := class label" is printed beside every figure (pytest -s shows the table). On
clean data it is .678, and gradient-space DBSCAN is one to three points above it on three of the
four data seeds, below it on the fourth: the tables say less for the method than they seem to.
"""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from operators.gradients import per_sample_gradients
from operators.grasp import GroupInference
from tests.paper.published import AS_PUBLISHED
from tests.paper.synthetic import Synthetic, synthetic

PAPER = 123
DATA_SEEDS = (PAPER, 0, 1, 2)
TRAINING_SEEDS = (0, 1, 2)
PUBLISHED_TO = 5e-5
EPOCHS, LEARNING_RATE, BATCH = 50, 0.01, 128


def ari(data: Synthetic, labels: Any) -> float:
    return float(adjusted_rand_score(data.group, labels))


def floor(data: Synthetic) -> float:
    return ari(data, data.y)


def kmeans_per_class(data: Synthetic, k: int) -> Any:
    labels = np.empty_like(data.y)
    for value in np.unique(data.y):
        rows = data.y == value
        labels[rows] = k * value + KMeans(k, n_init=10, random_state=0).fit_predict(data.X[rows])
    return labels


@pytest.mark.parametrize(("contaminated", "k", "published"), [(False, 2, 0.5505), (True, 3, 0.3631)])
def test_feature_space_kmeans(contaminated: bool, k: int, published: float) -> None:
    data = synthetic(contaminated=contaminated).inferred
    assert ari(data, kmeans_per_class(data, k)) == pytest.approx(published, abs=PUBLISHED_TO)


@pytest.mark.parametrize(("contaminated", "published"), [(False, 0.5133), (True, 0.4946)])
def test_feature_space_dbscan(contaminated: bool, published: float) -> None:
    data = synthetic(contaminated=contaminated).inferred
    labels = GroupInference(select="silhouette", **AS_PUBLISHED).fit_predict(data.X, data.y)
    assert ari(data, labels) == pytest.approx(published, abs=PUBLISHED_TO)


def test_floor_of_the_class_label() -> None:
    assert floor(synthetic().inferred) == pytest.approx(0.678, abs=5e-4)


def train_probe(data: Synthetic, seed: int) -> torch.nn.Linear:
    """Softmax regression by Adam; the global generator is left as it was."""
    X, y = torch.tensor(data.X, dtype=torch.float32), torch.tensor(data.y)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = torch.nn.Linear(2, 2)
        optimiser = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE)
        for _ in range(EPOCHS):
            for rows in torch.randperm(len(y)).split(BATCH):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
                optimiser.step()
    return model


@cache
def gradient_space_ari(contaminated: bool, data_seed: int, training_seed: int) -> float:
    data = synthetic(data_seed, contaminated=contaminated)
    model = train_probe(data.train, training_seed)
    rows = data.inferred
    gradients = per_sample_gradients(model, rows.X.astype(np.float32), rows.y)
    assert gradients.shape == (800, 2 * (2 + 1))
    return ari(rows, GroupInference(select="silhouette", **AS_PUBLISHED).fit_predict(gradients, rows.y))


@pytest.mark.parametrize(("contaminated", "low", "high"), [(False, 0.66, 0.71), (True, 0.64, 0.70)])
def test_gradient_space_dbscan(contaminated: bool, low: float, high: float) -> None:
    found = np.array([[gradient_space_ari(contaminated, d, t) for t in TRAINING_SEEDS] for d in DATA_SEEDS])
    print(f"\nARI, gradient-space DBSCAN/cos, {'contaminated' if contaminated else 'clean'}")
    print("data seed   " + "".join(f"  train {t}" for t in TRAINING_SEEDS) + "    mean   floor")
    for seed, row in zip(DATA_SEEDS, found, strict=True):
        below = floor(synthetic(seed, contaminated=contaminated).inferred)
        print(f"{seed:9d}   " + "".join(f"{v:9.4f}" for v in row) + f"{row.mean():8.4f}{below:8.4f}")
    print(f"      all   mean {found.mean():.4f}, standard deviation {found.std(ddof=1):.4f}")
    assert low <= found[0].mean() <= high
    assert low <= found.mean() <= high
