"""Neighbour graphs of factored gradients: those of the flat rows."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.neighbours import NeighbourGraph
from operators.neighbours import estimator as factored_module
from tests.unit.operators.factored.test_factored_dbscan import head_gradients

REACHES: list[dict[str, Any]] = [{"eps": 0.3}, {"n_neighbors": 7}, {"eps": 0.3, "n_neighbors": 7}]


@given(
    st.integers(0, 10_000),
    st.sampled_from(["euclidean", "cosine", "centered_cosine"]),
    st.sampled_from(REACHES),
    st.integers(1, 90),
)
def test_graph_and_queries_are_those_of_the_flat_rows(seed: int, metric: Any, reach: Any, n: int) -> None:
    gradients, new = head_gradients(seed, n), head_gradients(seed + 1, 40)
    flat = gradients.flat().astype(np.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(factored_module, "PAIRS", 500)
        ours = NeighbourGraph("flat", metric, **reach).fit(gradients)
    theirs = NeighbourGraph("flat", metric, **reach).fit(flat)
    pairs = [
        (ours.graph_, theirs.graph_),
        (ours.query(new), theirs.query(new.flat().astype(np.float64))),
        (ours.query(gradients[:1], np.zeros(1, int)), theirs.query(flat[:1], np.zeros(1, int))),
    ]
    for found, expected in pairs:
        np.testing.assert_array_equal(found.indptr, expected.indptr)
        np.testing.assert_array_equal(found.indices, expected.indices)
        np.testing.assert_allclose(found.distances, expected.distances, atol=1e-6)
    assert (ours.recall_, ours.n_features_in_) == (1.0, theirs.n_features_in_)


def test_of_rows_equally_far_the_first_come_first() -> None:
    gradients = head_gradients(0, 10)[np.zeros(10, int)]
    graph = NeighbourGraph("flat", "euclidean", n_neighbors=3).fit(gradients).graph_
    assert graph.indices[:6].tolist() == [1, 2, 3, 0, 2, 3]
    assert set(graph.distances.tolist()) == {0.0}


def test_what_is_refused() -> None:
    gradients = head_gradients(0, 300)
    with pytest.raises(ValueError, match=r"index is 'ivf', and X is factored.*index='flat'"):
        NeighbourGraph("ivf", eps=0.1).fit(gradients)
    with pytest.raises(ValueError, match="more than max_edges"):
        NeighbourGraph("flat", "cosine", eps=0.5, max_edges=10).fit(gradients)
    fitted = NeighbourGraph("flat", "cosine", n_neighbors=2).fit(gradients)
    with pytest.raises(ValueError, match="same form"):
        fitted.query(gradients.flat())
    gradients.layers[0].activations[5] = np.nan
    with pytest.raises(ValueError, match="X: row 5 of layer 0"):
        fitted.query(gradients)
