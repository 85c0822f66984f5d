"""Parts of the grid search that decide how much is computed: labels alone would not show that they fail."""

import numpy as np
import pytest
import sklearn.cluster
import torch

from operators.dbscan import kernel as kernel_module
from operators.dbscan.bounding_boxes import box
from operators.dbscan.components import _all_equal
from operators.dbscan.density import compare_all_pairs
from operators.dbscan.graph_dbscan import FEWEST_NEIGHBOURS, SearchSettings, approximate_grid
from operators.dbscan.tiles import Tiles
from operators.points import Points, equal_rows


@pytest.mark.parametrize("metric", ["cosine", "centered_cosine", "euclidean"])
def test_equal_rows_are_found_once_and_zero_rows_are_apart_by_direction(metric: str) -> None:
    X = np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [-1.0, -2.0], [0.0, 0.0], [1.0, 2.0], [-1.0, -2.0]])
    found = equal_rows(Points(X - (X.mean(axis=0) if metric == "centered_cosine" else 0.0), metric))
    if metric == "cosine":
        assert found.first.tolist() == [0, 1, 3, 4]
        assert found.kind.tolist() == [0, 1, 0, 2, 3, 0, 2]
        assert found.counts.tolist() == [3, 1, 2, 1]
    else:
        assert found.first.tolist() == [0, 1, 3]
        assert found.kind.tolist() == [0, 1, 0, 2, 1, 0, 2]
        assert found.counts.tolist() == [3, 2, 2]


@pytest.mark.parametrize("min_samples", [FEWEST_NEIGHBOURS + 2, 101])
def test_a_graph_has_as_many_neighbours_as_the_largest_threshold_asks_for(min_samples: int) -> None:
    """Two groups of 100 rows: with 65 neighbours a row, none of theirs would be core."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 0.1, (100, 4)), rng.normal(5, 0.1, (100, 4))])
    settings = SearchSettings("ivf", "euclidean", nprobe=10**6, ef_search=1000)
    found = approximate_grid(X, [3.0], [3, min_samples], settings)
    exact = sklearn.cluster.DBSCAN(eps=3.0, min_samples=min_samples).fit(X)
    np.testing.assert_array_equal(found.labels[0, 1], exact.labels_)
    assert found.labels[0, 0].tolist() == [0] * 100 + [1] * 100
    assert (found.labels[0, 1] == -1).all() == (min_samples > 100)


def test_blocks_beyond_the_radius_are_not_compared() -> None:
    at = np.array([[0.0], [1.0], [3.0], [9.0]])
    blocks = box(at, [np.array([0]), np.array([1]), np.array([2]), np.array([3])])
    assert blocks.nearest(at[0], at[0], 0.5).tolist() == [0, 1]  # a gap is half of a squared distance
    assert blocks.nearest(at[0], at[0], 0.499).tolist() == [0]
    assert blocks.nearest(at[3], at[3], 18.0).tolist() == [3, 2]


def test_directions_separate_rows_that_samples_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 2,000 rows in dense groups samples decide nearly all; the 60 scattered ones stay open."""
    given = []

    class Watched(kernel_module.BoxIndex):
        def __init__(self, points: Points, emphasis: np.ndarray, random: np.random.Generator) -> None:
            given.append(emphasis)
            super().__init__(points, emphasis, random)

    monkeypatch.setattr(kernel_module, "BoxIndex", Watched)
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(0, 0.1, (2000, 3)), rng.uniform(50, 90, (60, 3))])
    kernel_module.cluster(Points(X, "euclidean"), [1.0], [10])
    (emphasis,) = given
    assert {*range(2000, 2060)} <= {*emphasis.tolist()}
    assert len(emphasis) < 600


def test_a_tile_whose_rows_are_joined_is_known() -> None:
    assert _all_equal(np.array([4, 4]), np.array([4, 4, 4]))
    assert not _all_equal(np.array([4, 5]), np.array([4, 4]))
    assert not _all_equal(np.array([4, 4]), np.array([4, 5]))
    assert not _all_equal(np.array([4, 4]), np.array([5, 5]))
    assert not _all_equal(np.array([], int), np.array([], int))


def test_all_pairs_of_1024_rows_are_compared_and_no_more() -> None:
    X = np.arange(1025.0)[:, None]
    assert compare_all_pairs(Tiles(Points(X[:1024], "euclidean"), [1.5])) is not None
    assert compare_all_pairs(Tiles(Points(X, "euclidean"), [1.5])) is None


def test_products_are_single_precision_unless_the_radius_is_close_to_their_rounding_errors() -> None:
    X = np.random.default_rng(0).normal(size=(50, 4))
    for eps, expected in ((0.5, torch.float32), (1e-4, torch.float64)):
        assert Tiles(Points(X, "euclidean"), [eps]).buffer().products.dtype == expected
