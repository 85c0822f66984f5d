"""Hashes of row ids: SplitMix64's published outputs, uniform draws, and draws of several purposes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from operators.eos.kernel import random_rows
from operators.hashing import _mix as mix
from operators.hashing import folds_of, row_hashes, uniform

IDS = np.arange(20_000)


def test_the_mixing_function_is_splitmix64() -> None:
    """The first five outputs of the reference implementation for the seed 1234567 (Rosetta Code)."""
    states = [(1234567 + step * 0x9E3779B97F4A7C15) % 2**64 for step in range(5)]
    assert mix(np.array(states, np.uint64)).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_hashes_are_distinct_and_their_draws_uniform() -> None:
    hashes = row_hashes(IDS, 7, "a/b")
    assert len(np.unique(hashes)) == len(IDS)
    assert kstest(uniform(hashes), "uniform").pvalue > 0.001
    shares = np.bincount(folds_of(IDS, 5, 7, "a/b")) / len(IDS)
    np.testing.assert_allclose(shares, 0.2, atol=0.02)


@pytest.mark.parametrize(("seed", "purpose"), [(0, "weights/folds"), (1, "eos/sample"), (0, "")])
def test_draws_of_another_purpose_or_seed_share_rows_by_chance_alone(seed: int, purpose: str) -> None:
    """A tenth of the rows, drawn twice, has a tenth of them in common (here .1 +- .01)."""
    first, second = (
        np.argsort(row_hashes(IDS, s, p))[:2_000] for s, p in ((0, "eos/sample"), (seed, purpose))
    )
    assert np.isin(first, second).mean() == pytest.approx(0.1, abs=0.03)


def test_the_alpha_sample_of_eos_is_not_the_validation_part() -> None:
    """Both once were the rows of least unsalted hash: all of the sample was validation rows."""
    validation = np.argsort(row_hashes(IDS, 0))[:4_000]
    assert np.isin(random_rows(IDS, 2_000, 0), validation).mean() == pytest.approx(0.2, abs=0.04)
