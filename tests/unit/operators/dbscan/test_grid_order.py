"""The order in which a grid's radii are solved."""

from __future__ import annotations

import pytest

from operators.dbscan.kernel import inwards


@pytest.mark.parametrize("n", [1, 2, 3, 4, 13, 64])
def test_every_radius_comes_once_between_the_nearest_two_done_before(n: int) -> None:
    done = {-1, n}
    for level, below, above in inwards(n):
        assert level not in done
        assert below == max(k for k in done if k < level)
        assert above == min(k for k in done if k > level)
        done.add(level)
    assert done == set(range(-1, n + 1))
