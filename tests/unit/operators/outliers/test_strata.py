import numpy as np
import pytest

from operators.arrays import Float32, Int64, Mask
from operators.outliers.assessment import assess
from operators.outliers.mixture import confirm_by_labels
from operators.outliers.strata import strata_of
from operators.outliers.verdict import fit


def breaks(X: Float32, y: Int64) -> Mask:
    """Tell which rows break a shortcut that is the last column, -1 or 1 for classes 3 and 8."""
    return np.asarray((X[:, -1] > 0) != (y == 8))


def rows(n: int) -> tuple[Float32, Int64]:
    rng = np.random.default_rng(0)
    y = np.where(rng.random(n) < 0.45, 8, 3)
    told = np.where(y == 8, 1.0, -1.0) * np.where(rng.random(n) < 0.92, 1, -1)
    latent = rng.normal(size=(n, 3)) + np.outer(np.where(y == 8, 1.0, -1.0), (1, 0, 0))
    X = latent @ rng.normal(size=(3, 8)) + 0.3 * rng.normal(size=(n, 8))
    return np.column_stack([X, told]).astype(np.float32), y


def test_rows_are_told_apart_by_class_and_by_whether_they_break_a_shortcut():
    X, y = rows(300)
    classes, label = np.unique(y, return_inverse=True)
    found = strata_of(X, label, classes, breaks, seed=0)
    broken = breaks(X, y)
    np.testing.assert_array_equal(found.observed, 2 * label + broken)
    mixed, permuted = (of % 2 for of in found.planted)
    assert 0.4 < mixed.mean() < 0.6, "a value from another row says nothing of the label"
    assert 0.4 < permuted.mean() < 0.6
    for known in (None, lambda X, y: np.zeros(len(y), np.bool_)):
        alone = strata_of(X, label, classes, known, seed=0)
        assert not alone.observed.any()
        assert not np.any(alone.planted)


def test_suspected_rows_are_compared_with_those_of_their_stratum():
    """Rows of the rare class are hard to tell and far from others, whether damaged or not."""
    strata = np.repeat([0, 1], [900, 100])
    wrong = np.where((np.arange(1000) // 4) % 4 > 0, 1.0, 0.0) * strata
    wrong[:900:10] = 1.0
    suspected = (strata == 1) & (np.arange(1000) % 4 < 2)
    planted, one = np.ones(1000), np.zeros(1000, int)
    everywhere = np.ones(1000, np.bool_)
    assert confirm_by_labels(wrong, planted, suspected, everywhere, (one, one)) > 0.6
    assert confirm_by_labels(wrong, planted, suspected, everywhere, (strata, strata)) == 0
    wrong[suspected] = 1.0
    assert confirm_by_labels(wrong, planted, suspected, everywhere, (strata, strata)) == 1


@pytest.mark.parametrize("known", [None, breaks])
def test_damaged_rows_are_marked_where_a_shortcut_is_known(known: object):
    X, y = rows(1500)
    rng = np.random.default_rng(1)
    damaged = rng.random(len(y)) < 0.05
    for column in range(X.shape[1]):
        X[damaged, column] = X[rng.integers(0, len(y), damaged.sum()), column]
    ids = np.arange(len(y))
    marked = assess(fit(X, y, ids, breaks=known), X, y, ids).is_outlier  # type: ignore[arg-type]
    assert marked[damaged].mean() > 0.8
    assert marked[~damaged].mean() < 0.01
