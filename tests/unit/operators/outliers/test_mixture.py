"""Shares of planted kinds in a mixture, and the damage that is planted."""

from __future__ import annotations

import numpy as np
import pytest

from operators.outliers.mixture import fit_ratios, label_check, mixture_shares, prevalence_bound, separation
from operators.outliers.planted import flip_labels, mix_columns, permute_within


def test_shares_of_a_known_mixture_are_recovered() -> None:
    rng = np.random.default_rng(0)
    E = np.r_[rng.normal(0, 1, (9000, 1)), rng.normal(4, 1, (1000, 1))]
    assert mixture_shares(4 * E - 8, np.array([0.02]))[0] == pytest.approx(0.1, abs=0.01)
    assert 0.09 <= prevalence_bound(E[:, 0], rng.normal(4, 1, 10_000)) <= 0.13


def test_ratios_of_planted_rows_give_the_prevalence() -> None:
    rng = np.random.default_rng(0)
    clean, kind = rng.normal(0, 1, (2000, 2)), rng.normal(4, 1, (2000, 2))
    ratios = fit_ratios(np.r_[clean[:1900], kind[:100]], [rng.normal(4, 1, (2000, 2))], [0, 1], rounds=8)
    assert ratios.prevalence[0] == pytest.approx(0.05, abs=0.015)


def test_every_label_changes_and_rows_keep_their_values() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    assert not (flip_labels(y, 3, rng) == y).any()
    Z = rng.normal(size=(300, 5)).astype(np.float32)
    np.testing.assert_array_equal(np.sort(permute_within(Z, rng), axis=1), np.sort(Z, axis=1))
    np.testing.assert_array_equal(np.sort(mix_columns(Z, rng), axis=0), np.sort(Z, axis=0))


def test_suspected_rows_are_damaged_only_if_labels_contradict_them() -> None:
    assert separation(np.zeros(5), np.ones(5)) == 1.0
    rows = np.arange(1000)
    suspected = rows < 100
    natural, damaged = (rows % 20 == 0).astype(float), rows % 2 * 1.0
    everyone = np.ones(1000, bool)
    assert label_check(np.where(suspected, damaged, natural), damaged, suspected, everyone) > 0.8
    assert label_check(natural, damaged, suspected, everyone) == 0
