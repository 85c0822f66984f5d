"""Draws by a hash of the row id."""

from __future__ import annotations

import numpy as np

from operators.cues.models import draws


def test_flip_draws_depend_on_the_id_alone_and_are_uniform():
    ids = np.arange(20_000)
    u = draws.flip_draws(ids, 1, 0, 0)
    assert np.array_equal(draws.flip_draws(ids[::-1], 1, 0, 0)[::-1], u)
    assert np.abs(np.histogram(u, 10, (0, 1))[0] / 2000 - 1).max() < 0.1
    for other in (
        draws.flip_draws(ids, 1, 0, 1),
        draws.flip_draws(ids, 1, 1, 0),
        draws.flip_draws(ids, 2, 0, 0),
    ):
        assert abs(np.corrcoef(u, other)[0, 1]) < 0.03


def test_quotas_keep_small_classes():
    assert draws.sample_quotas([10, 20], 100) == [10, 20]
    assert draws.sample_quotas([90_000, 700, 30, 0], 10_000) == [9919, 500, 30, 0]


def test_many_classes_share_the_rows_of_the_sample():
    assert sum(draws.sample_quotas([600] * 10_000, 50_000)) == 50_000
    assert sum(draws.sample_quotas([600] * 100, 3200)) == 3200
    rare = draws.sample_quotas([10**6, *[600] * 1999, 0], 50_000)
    assert (rare[0], set(rare[1:])) == (50_000 * 10**6 // (10**6 + 600 * 1999), {25, 0})
    assert draws.sample_quotas([9, 8], 1) == [1, 1]


def test_two_splits_have_independent_halves():
    ids = np.arange(20_000)
    table = np.bincount(2 * draws.halves(ids, 0, 0) + draws.halves(ids, 0, 1))
    assert np.abs(table / 5000 - 1).max() < 0.05
