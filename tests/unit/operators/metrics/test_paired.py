"""Paired tests of a challenger: how often they promote without a gain, and how often they find one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.stats import binom, binomtest, fisher_exact, norm

import engine
from engine.recipe.promotion import PromotionRule
from engine.training.champion import PairedAnswers, PairedCell
from operators.metrics.paired import PairedCounts, gain_p_value

ROWS = np.array([2000, 1500, 400, 200])
ACCURACY = np.array([0.95, 0.93, 0.85, 0.70])
RULE = PromotionRule.parse(
    "worst_group_accuracy > champion with confidence 0.95 and accuracy > champion - 0.005"
)
NIGHTS = 200


def night(rng: np.random.Generator, gain: NDArray[np.float64], differ: float) -> PairedCounts:
    """Answers of two models whose accuracies differ by ``gain`` and that disagree on a share of the rows."""
    share = np.maximum(np.minimum(differ, 1.8 * (1 - ACCURACY)), np.abs(gain))
    gained, lost = (share + gain) / 2, (share - gain) / 2
    both = ACCURACY - lost
    cells = np.stack([both, gained, lost, 1 - both - gained - lost], axis=1)
    drawn = np.array([rng.multinomial(n, cell) for n, cell in zip(ROWS, cells, strict=True)])
    return PairedCounts(ROWS, drawn[:, 0] + drawn[:, 2], drawn[:, 1], drawn[:, 2])


def promoted(counts: PairedCounts) -> bool:
    """The recipe's rule on these counts."""
    arrays = (counts.rows, counts.right_before, counts.gained, counts.lost)
    cells = {g: PairedCell(*(int(a[g]) for a in arrays)) for g in range(len(counts.rows))}
    new = counts.both + counts.gained
    scores = [
        {
            "worst_group_accuracy": float((right / counts.rows).min()),
            "accuracy": right.sum() / counts.rows.sum(),
        }
        for right in (new, counts.right_before)
    ]
    return RULE.evaluate(scores[0], scores[1], PairedAnswers({"inferred": cells}))[0]


@pytest.mark.parametrize(
    "differ", [0.04, *(pytest.param(more, marks=pytest.mark.slow) for more in (0.1, 0.25))]
)
def test_nights_without_change_promote_in_at_most_5_percent(differ: float) -> None:
    """The rates are 1.6, 3.3 and 3.0 % over 1,500 nights: of 600 nights, the bound is two deviations away."""
    rng = np.random.default_rng(0)
    none = np.zeros(4)
    assert np.mean([promoted(night(rng, none, differ)) for _ in range(3 * NIGHTS)]) <= 0.05


def test_figures_compared_as_they_are_promote_without_change() -> None:
    """The reason for the rule: the old one promotes noise on more than a quarter of the nights."""
    rng = np.random.default_rng(0)
    gains = []
    for _ in range(NIGHTS):
        counts = night(rng, np.zeros(4), 0.1)
        new = (counts.both + counts.gained) / counts.rows
        gains.append(new.min() - (counts.right_before / counts.rows).min())
    assert np.mean(np.array(gains) > 0.01) >= 0.25


@dataclass(frozen=True)
class Outcomes:
    """All outcomes of a group: rows that differ, those of them gained, and their probabilities."""

    differ: NDArray[np.int64]
    gained: NDArray[np.int64]
    without: NDArray[np.float64]
    """Probability if both models are equally good."""
    with_gain: NDArray[np.float64]


def outcomes(rows: int, gain: float, differ: float) -> Outcomes:
    found = []
    for n in range(rows + 1):
        weight = binom.pmf(n, rows, differ)
        if weight > 1e-14:
            k = np.arange(n + 1)
            share = (differ + gain) / 2 / differ
            found.append(
                (np.full(n + 1, n), k, weight * binom.pmf(k, n, 0.5), weight * binom.pmf(k, n, share))
            )
    return Outcomes(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def power(rows: int, gain: float, differ: float, level: float = 0.05) -> float:
    """Probability that McNemar's exact one-sided test finds a gain: a sum over the rows that differ."""
    found = outcomes(rows, gain, differ)
    return float(found.with_gain[binom.sf(found.gained - 1, found.differ, 0.5) <= level].sum())


def best_power(rows: int, gain: float, differ: float, level: float = 0.05) -> float:
    """Largest power of any test of this level (Neyman and Pearson): by the ratio of the probabilities.

    A valid test has the level for equally good models that differ on any share of the rows, so also for
    this share, which the most powerful test knows.
    """
    found = outcomes(rows, gain, differ)
    order = np.argsort(-found.with_gain / found.without, kind="stable")
    size = np.cumsum(found.without[order])
    inside = int((size <= level).sum())
    left = level - (size[inside - 1] if inside else 0.0)
    edge = order[inside]
    return float(found.with_gain[order[:inside]].sum() + found.with_gain[edge] * left / found.without[edge])


def mid_p_size(rows: int, differ: float, level: float = 0.05) -> float:
    """Probability that the mid-p value promotes without a gain."""
    found = outcomes(rows, 0.0, differ)
    n, k = found.differ, found.gained
    return float(found.without[binom.sf(k - 1, n, 0.5) - binom.pmf(k, n, 0.5) / 2 <= level].sum())


@pytest.mark.parametrize("differ", [0.05, 0.07])
def test_a_gain_of_5_points_on_a_group_of_200_rows_is_found(differ: float) -> None:
    rng = np.random.default_rng(1)
    gain = np.array([0, 0, 0, 0.05])
    found = np.mean([promoted(night(rng, gain, differ)) for _ in range(NIGHTS)])
    assert found >= 0.8
    assert found == pytest.approx(power(200, 0.05, differ), abs=0.08)


@pytest.mark.slow
def test_the_table_of_the_page_says_what_can_be_found() -> None:
    """Each cell is the power of the exact test and, in brackets, that of the best valid test."""
    page = (Path(engine.__file__).parent / "training" / "README.md").read_text("utf-8")
    table = page.partition("| rows | differ on 5 % |")[2].partition("\n\n")[0].splitlines()
    shares = [0.05, 0.07, 0.08, 0.09, 0.1, 0.15, 0.2, 0.43]
    for line in table[2:]:
        rows, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        n = int(rows.replace(",", ""))
        for share, cell in zip(shares, cells, strict=True):
            found = [f"{call(n, 0.05, share):.2f}".removeprefix("0") for call in (power, best_power)]
            assert cell == "{} ({})".format(*found), (rows, share)


@pytest.mark.slow
def test_no_valid_test_finds_five_points_in_200_rows_that_often_differ() -> None:
    assert power(200, 0.05, 0.07) >= 0.8
    assert best_power(200, 0.05, 0.08) >= 0.8 > best_power(200, 0.05, 0.09)
    assert power(200, 0.05, 0.1) < best_power(200, 0.05, 0.1) < 0.75
    shares = np.linspace(0.01, 1, 60)
    assert max(mid_p_size(50, share) for share in shares) > 0.059
    assert max(mid_p_size(200, share) for share in shares) > 0.051


def test_one_group_is_mcnemars_exact_test() -> None:
    counts = PairedCounts(*(np.array([n]) for n in (300, 200, 25, 11)))
    assert gain_p_value(counts) == binomtest(25, 36, alternative="greater").pvalue


def test_the_p_value_of_two_groups_is_that_of_scipys_exact_tests() -> None:
    """Group 1 stands apart from the champion's worst group, which both groups are compared with."""
    counts = PairedCounts(np.array([60, 80]), np.array([24, 70]), np.array([19, 5]), np.array([3, 4]))
    own = binomtest(19, 22, alternative="greater").pvalue
    other = fisher_exact([[71, 9], [24, 36]], alternative="greater").pvalue
    assert gain_p_value(counts) == pytest.approx(max(own, other))


def moved(rng: np.random.Generator, before: tuple[float, ...], after: tuple[float, ...]) -> PairedCounts:
    """Answers on 300 rows of each group by models whose accuracies are these."""
    both = np.minimum(before, after) - 0.02
    cells = np.stack([both, after - both, before - both, 1 + both - before - np.array(after)], axis=1)
    drawn = rng.multinomial(300, cells)
    return PairedCounts(np.full(len(both), 300), drawn[:, 0] + drawn[:, 2], drawn[:, 1], drawn[:, 2])


@pytest.mark.parametrize(
    ("before", "after"),
    [((0.65, 0.6), (0.6, 0.65)), ((0.6, 0.6), (0.6, 0.8)), ((0.6,) * 6, (0.6,) + (0.8,) * 5)],
    ids=["moves", "one_less", "one_of_six"],
)
def test_a_worst_group_that_is_no_better_is_promoted_in_5_percent_at_most(
    before: tuple[float, ...], after: tuple[float, ...]
) -> None:
    """The permutation test promoted 21, 31 and 63 %, the bootstrap 2.5, 12 and 47 %.

    The bound lies two standard deviations of 200 draws above 5 %.
    """
    rng = np.random.default_rng(0)
    assert np.mean([gain_p_value(moved(rng, before, after)) <= 0.05 for _ in range(200)]) <= 0.08


def test_a_gain_in_the_worst_group_is_found_where_another_is_the_worst_after_it() -> None:
    rng = np.random.default_rng(0)
    found = [gain_p_value(moved(rng, (0.8, 0.6), (0.7, 0.8))) <= 0.05 for _ in range(200)]
    assert np.mean(found) >= 0.75


@pytest.mark.parametrize("margin", [-0.05, -0.005, 0.02])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((0.6,), (0.6,)),
        ((0.65, 0.6), (0.6, 0.65)),
        ((0.6, 0.6), (0.6, 0.8)),
        ((0.6,) * 6, (0.6,) + (0.8,) * 5),
    ],
    ids=["one", "moves", "one_less", "one_of_six"],
)
def test_a_gain_of_the_margin_is_promoted_in_5_percent_at_most(
    before: tuple[float, ...], after: tuple[float, ...], margin: float
) -> None:
    """Each challenger's worst group gains exactly the margin; the bootstrap promoted up to 47 %.

    The bound lies two standard deviations of 200 draws above 5 %.
    """
    rng = np.random.default_rng(0)
    gains = tuple(share + margin for share in after)
    found = [gain_p_value(moved(rng, before, gains), margin) <= 0.05 for _ in range(200)]
    assert np.mean(found) <= 0.08


@pytest.mark.parametrize("rows", [50, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("margin", [-0.05, 0.01])
def test_a_gain_of_the_margin_in_one_group_is_promoted_in_less_than_5_percent(
    margin: float, rows: int
) -> None:
    """Sums over all outcomes, for any share of rows that differ; without correction 8 % at 300 rows."""
    passed = [
        (gained, lost)
        for gained in range(rows + 1)
        for lost in range(min(int(gained - rows * margin), rows - gained) + 1)
        if gain_p_value(PairedCounts(*(np.array([n]) for n in (rows, lost, gained, lost))), margin) <= 0.05
    ]
    gained, lost = np.array(passed).T
    for least in np.geomspace(0.001, 0.2, 20):
        share = least + max(0.0, -margin)  # of rows that are lost
        p = binom.pmf(gained, rows, share + margin)
        p *= binom.pmf(lost, rows - gained, share / (1 - share - margin))
        assert p.sum() <= 0.05


def test_a_challenger_within_the_margin_is_found() -> None:
    rng = np.random.default_rng(0)
    same = [gain_p_value(moved(rng, (0.8, 0.6), (0.8, 0.6)), -0.05) <= 0.05 for _ in range(200)]
    assert np.mean(same) >= 0.9


def score(log_likelihood: Callable[[float], float], low: float, high: float) -> float:
    """Place of the largest likelihood, by search."""
    found = minimize_scalar(
        lambda at: -log_likelihood(at), bounds=(low, high), method="bounded", options={"xatol": 1e-11}
    )
    return float(found.x)


@pytest.mark.parametrize("d", [-0.1, -0.005, 0.03])
def test_the_score_tests_use_the_likeliest_shares_under_the_margin(d: float) -> None:
    """Against a numerical search for the shares that the two papers give in closed form."""
    n, gained, lost = 300, 25, 11
    low = max(0.0, -d) + 1e-9
    q = score(
        lambda q: gained * np.log(q + d) + lost * np.log(q) + (n - gained - lost) * np.log(1 - 2 * q - d),
        low,
        (1 - d) / 2 - 1e-9,
    )
    z = (gained - lost - 1 - n * d) / np.sqrt(n * (2 * q + d - d * d))
    one = PairedCounts(*(np.array([count]) for count in (n, 200, gained, lost)))
    assert gain_p_value(one, d) == pytest.approx(norm.sf(z), rel=1e-5)
    # Group 1 is compared with group 0, which stands apart as the champion's worst.
    two = PairedCounts(np.array([60, 80]), np.array([24, 70]), np.array([60 - 24, 0]), np.array([0, 30]))
    p = score(
        lambda p: 40 * np.log(p) + 40 * np.log(1 - p) + 24 * np.log(p - d) + 36 * np.log(1 - p + d),
        max(0.0, d) + 1e-9,
        min(1.0, 1 + d) - 1e-9,
    )
    z = (40 / 80 - 24 / 60 - d - (1 / 80 + 1 / 60) / 2) / np.sqrt(
        p * (1 - p) / 80 + (p - d) * (1 - p + d) / 60
    )
    assert gain_p_value(two, d) == pytest.approx(norm.sf(z), rel=1e-5)


@pytest.mark.parametrize("margin", [-1.0, -0.5, 0.5, 1.0])
def test_margins_at_the_ends_have_p_values(margin: float) -> None:
    rows = np.array([60, 60])
    for right, gained, lost in ((0, 60, 0), (60, 0, 60), (60, 0, 0), (0, 0, 0), (30, 30, 0)):
        counts = PairedCounts(rows, *(np.array([count] * 2) for count in (right, gained, lost)))
        assert 0 <= gain_p_value(counts, margin) <= 1


def test_models_that_never_differ_show_no_gain() -> None:
    same = PairedCounts(ROWS, np.array([1900, 1400, 350, 150]), np.zeros(4, int), np.zeros(4, int))
    assert gain_p_value(same) == 1.0
    assert gain_p_value(same, 0.01) > 0.5 > gain_p_value(same, -0.01)


def test_small_groups_do_not_decide() -> None:
    """A group of ten rows, all gained, is pooled with the other small ones."""
    cells = {0: PairedCell(500, 350, 0, 0), 1: PairedCell(10, 0, 10, 0), 2: PairedCell(45, 45, 0, 10)}
    counts = PairedAnswers({"inferred": cells}).counts("inferred")
    assert counts.rows.tolist() == [500, 55]
    assert counts.gained.tolist() == [0, 10]
    assert not PairedAnswers({"inferred": cells})("worst_group_accuracy", 0.0, 0.95).holds
