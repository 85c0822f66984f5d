"""The peers of the splits benchmark solve the same problem, and the study counts what it says."""

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from operators.splits.selection import DisjointGroups
from tests.benchmarks.splits import features, linear_program, tables
from tests.paper.splits.trials import CLUSTERS, SPLITS, chosen, validation_mask


@pytest.mark.parametrize("solver", ["HIGHS", "CLARABEL"])
def test_the_papers_program_gives_our_labels(solver: str) -> None:
    random = np.random.default_rng(0)
    gain, groups = random.normal(size=150), random.integers(0, 3, 150)
    selector = DisjointGroups(groups, 0.2)
    found = linear_program(gain, groups, selector.quotas.low, solver)
    np.testing.assert_array_equal(found, selector.select(gain))


@pytest.mark.skipif(
    find_spec("ortools") is None, reason="OR-tools has a Python of its own: see the benchmarks"
)
def test_the_flow_gives_our_labels() -> None:
    from tests.benchmarks.splits_flow import flow

    gain = np.random.default_rng(0).normal(size=60)
    np.testing.assert_array_equal(flow(gain, 12), DisjointGroups(np.zeros(60, np.int64), 0.2).select(gain))


def test_features_are_compared_on_equal_terms() -> None:
    entry = features(600, 8, 20)
    assert entry["largest difference of a kernel value"] < 1e-3
    assert set(tables({"features": [entry]})) == {"splits-machine", "splits-bars", "splits"}


@pytest.mark.parametrize("split", SPLITS)
def test_splits_of_the_study(split: str) -> None:
    random = np.random.default_rng(0)
    X, y, domain = random.normal(size=(120, 3)), np.arange(120) % 2, np.arange(120) // 2 % 3
    mask: Any = validation_mask(split, X, y, domain, 0)
    if split == "leave one domain out":
        assert len(np.unique(domain[mask])) == 1
        assert mask.sum() == 40
    else:
        assert [mask[y == label].sum() for label in (0, 1)] == [12, 12]
    if split in CLUSTERS and CLUSTERS[split][1]:
        assert [mask[(y == 0) & (domain == d)].sum() for d in range(3)] == [4, 4, 4]


def test_ties_count_by_their_mean() -> None:
    assert chosen(np.array([0.5, 0.9, 0.9]), np.array([1.0, 0.2, 0.6])) == pytest.approx(0.4)
