"""Shares of planted kinds in a mixture, and the damage that is planted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from operators.outliers.flip_share import separation
from operators.outliers.mixture import (
    confirm_by_labels,
    fit_ratios,
    flip_ratios,
    mixture_shares,
    prevalence_bound,
)
from operators.outliers.planted import category_of, flip_labels, mix_columns, permute_within


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


def test_columns_of_one_category_are_damaged_together() -> None:
    rng = np.random.default_rng(0)
    first, second = np.eye(3)[rng.integers(0, 3, 200)], np.eye(2)[rng.integers(0, 2, 200)]
    flag = rng.integers(0, 2, 200)
    Z = np.column_stack([rng.normal(size=200), first, second, flag, np.zeros(200)]).astype(np.float32)
    Z = (Z - Z.mean(axis=0)) / 2
    assert category_of(Z).tolist() == [0, 1, 1, 1, 2, 2, 3, 4]
    mixed = mix_columns(Z, rng)
    assert len(np.unique(mixed[:, 1:4].round(5), axis=0)) == 3
    assert len(np.unique(mixed[:, 4:6].round(5), axis=0)) == 2
    assert not (mixed == Z).all()


def test_a_category_has_rows_whose_level_is_too_rare_for_a_column() -> None:
    rng = np.random.default_rng(0)
    Z = np.eye(4, dtype=np.float32)[rng.choice(4, 500, p=[0.5, 0.3, 0.18, 0.02])][:, :3]
    Z = np.column_stack([Z, rng.integers(0, 2, 500), rng.random(500) < 0.02]).astype(np.float32)
    assert category_of(Z).tolist() == [0, 0, 0, 1, 2]
    assert mix_columns(Z, rng)[:, :3].sum(axis=1).max() == 1


@given(arrays(np.float32, st.tuples(st.integers(2, 4), st.integers(1, 7)), elements=st.sampled_from([0, 1])))
@settings(max_examples=300)
def test_categories_are_those_of_a_search_from_every_column(Z: np.ndarray) -> None:
    varies = Z.min(axis=0) < Z.max(axis=0)
    category, start = np.arange(Z.shape[1]), 0
    while start < Z.shape[1]:
        stop = start
        while stop < Z.shape[1] and varies[stop] and Z[:, start : stop + 1].sum(axis=1).max() == 1:
            stop += 1
        whole = stop > start + 1 and Z[:, start:stop].any(axis=1).all()
        category[start : stop if whole else start + 1] = start
        start = stop if whole else start + 1
    assert category_of(Z).tolist() == np.unique(category, return_inverse=True)[1].tolist()


def test_each_column_of_rare_flags_is_read_a_few_times() -> None:
    class Counted(np.ndarray):
        reads = 0

        def __getitem__(self, key):
            Counted.reads += isinstance(key, tuple)
            return super().__getitem__(key)

    flags = np.zeros((400, 100), np.float32)
    flags[np.arange(100), np.arange(100)] = 1
    assert category_of(flags.view(Counted)).tolist() == list(range(100))
    assert Counted.reads <= 3 * 100


def test_the_ratio_of_flips_ranks_as_the_mean_of_a_narrow_and_a_wide_one() -> None:
    rng = np.random.default_rng(0)
    wrong = np.where(rng.random(3000) < 0.06, 4.0, 0.0)[:, None]
    # The evidence at the other label: a planted flip gives a wrong label of two classes back.
    E, flipped = rng.normal(-2, 1, (3000, 3)) + wrong, rng.normal(2, 1, (3000, 3)) - wrong
    ratios, share = flip_ratios(E, flipped, [0], [0, 1, 2], 2, 0.88)
    assert share == pytest.approx(0.06, abs=0.015)
    parts = [fit_ratios(E, [flipped], columns, rounds=12).log_ratios(E)[:, 0] for columns in ([0], [0, 1, 2])]
    inside = (np.abs(parts) < 40).all(axis=0)
    slope, shift = np.polyfit(np.mean(parts, axis=0)[inside], ratios.log_ratios(E)[inside, 0], 1)
    assert slope > 0
    np.testing.assert_allclose(
        ratios.log_ratios(E)[inside, 0], slope * np.mean(parts, axis=0)[inside] + shift, atol=1e-6
    )
    clean = rng.normal(-2, 1, (3000, 3))
    assert flip_ratios(clean, rng.normal(2, 1, (3000, 3)), [0], [0, 1, 2], 2, 0.88)[1] < 0.0015
    assert flip_ratios(E, E + 0.3, [0], [0, 1, 2], 2, 0.88)[1] == 0


def test_suspected_rows_are_damaged_only_if_labels_contradict_them() -> None:
    assert separation(np.zeros(5), np.ones(5)) == 1.0
    rows = np.arange(1000)
    suspected = rows < 100
    natural, damaged = (rows % 20 == 0).astype(float), rows % 2 * 1.0
    everyone = np.ones(1000, bool)
    assert confirm_by_labels(np.where(suspected, damaged, natural), damaged, suspected, everyone) > 0.8
    assert confirm_by_labels(natural, damaged, suspected, everyone) == 0


def test_labels_that_are_hardly_predictable_confirm_nothing() -> None:
    rows = np.arange(1000)
    suspected = rows < 100
    natural, damaged = (rows % 3 == 0).astype(float), (rows % 9 < 4).astype(float)  # .33 against .44
    wrong = np.where(suspected, damaged, natural)
    assert wrong[suspected].mean() > wrong[~suspected].mean() + 0.1
    assert confirm_by_labels(wrong, damaged, suspected, np.ones(1000, bool)) == 0
