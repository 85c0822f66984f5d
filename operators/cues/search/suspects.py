"""The list of suspected shortcuts for the report: where a model leans, what balancing would win and what
it would cost.

A suspect is shown with what was measured on held-out rows. The list accuses nobody: honest features that
decide a label look like shortcuts, and only the user can tell.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Floats, Integers
from operators.class_shares import counted_classes
from operators.cues.models.class_accuracy import class_mean
from operators.cues.models.cross_fitting import cross_fit, cross_fit_halves
from operators.cues.models.draws import Split, draw_sample, halves
from operators.cues.models.half_models import fit_halves
from operators.cues.models.linear import Scaler, class_balance
from operators.cues.search.gain import MIN_CELL_ROWS
from operators.cues.search.same_rows import SaySame, equal_but_for_sign, grouped
from operators.cues.search.slices import TOP, Slices, strongest
from operators.cues.settings import CueSettings
from operators.encode.words import Gap


@dataclass(frozen=True)
class Suspect:
    """One suspected shortcut, measured on rows that the models did not see.

    Attributes
    ----------
    feature
        Column.
    gap
        Neighbouring values of the feature in the sample, in its own unit. Rows inside the slice have at least
        the upper one, all others at most the lower one.
    share
        Part of the rows inside.
    share_by_class
        The same per class, shape (C,).
    accuracy_inside, accuracy_outside
        Held-out accuracy of class-balanced models per class, shape (C,); NaN for a cell without rows.
    gain
        Rise of the worst cell's held-out accuracy if label and slice are balanced, over the better of class
        balance and no weights; cells are class x side with at least 20 rows.
    gain_rows
        Rows of the worst cell, with the balance or before it, the fewer of the two.
    small_cells
        Rows of each cell that has too few to be in the gain, ascending.
    cost
        Loss of held-out balanced accuracy against class balance by the same.
    strength
        Geometric mean of the explained shares of probabilities and error, in [0, 1].
    same
        Other columns that say the same of the rows (:mod:`operators.cues.search.same_rows`).
    stands_out
        Whether it is worth an answer whatever these figures say.

    """

    feature: int
    gap: Gap
    share: float
    share_by_class: Floats
    accuracy_inside: Floats
    accuracy_outside: Floats
    gain: float
    gain_rows: int
    small_cells: tuple[int, ...]
    cost: float
    strength: float
    same: tuple[int, ...] = ()
    stands_out: bool = False


@dataclass(frozen=True, kw_only=True)
class MeasuredSample:
    """The rows on which suspects are measured.

    Attributes
    ----------
    X, Z, y, ids
        Rows of the features that are cut (n, m), the same standardised, labels (n,), row ids (n,).
    features
        Standardised features of the models, shape (n, d): ``Z``, unless other columns than these are cut.
    before, plain
        Held-out probabilities of class-balanced models and of models without weights for split 0, shape
        (n, C).
    l2, seed
        As in ``CueSettings``.

    """

    X: Floats
    Z: Floats
    y: Integers
    ids: Integers
    features: Floats
    before: Floats
    plain: Floats
    l2: float
    seed: int

    def of_rows(self, rows: Integers) -> MeasuredSample:
        """Return some of the rows."""
        parts = {
            name: getattr(self, name)[rows] for name in ("X", "Z", "y", "ids", "features", "before", "plain")
        }
        return replace(self, **parts)

    def with_marks(self, marks: Floats) -> MeasuredSample:
        """Return the sample with marks of 0 and 1, shape (n, k), for the last columns that are cut."""
        first = self.X.shape[1] - marks.shape[1]
        X, Z = (np.hstack([columns[:, :first], marks]) for columns in (self.X, self.Z))
        return replace(self, X=X, Z=Z)


def measured_sample(
    X: Floats, y: Integers, ids: Integers, settings: CueSettings | None = None, n_classes: int | None = None
) -> tuple[MeasuredSample, Floats]:
    """Return the rows on which suspects are measured, and held-out probabilities (n, C) that score slices.

    Parameters
    ----------
    X, y, ids
        As for ``fit``; the same sample of at most ``settings.max_rows`` rows is drawn.
    settings
        Sample, seed and ridge penalty. Default ``CueSettings()``.
    n_classes
        C; default the largest label + 1.

    """
    s = settings or CueSettings()
    C = n_classes or int(y.max()) + 1
    rows = draw_sample(y, ids, s.max_rows, s.seed)
    rows = rows[counted_classes(np.bincount(y, minlength=C))[y[rows]]]
    X, y, ids = X[rows], y[rows], ids[rows]
    Z = Scaler.from_rows(X).apply(X)
    models = fit_halves(Z, y, ids, C, s.seed, l2=s.l2)
    before = models.held_out(Z, ids)
    plain = cross_fit(Z, y, ids, models, 0, np.ones(len(y)), s.l2)
    sample = MeasuredSample(
        X=X, Z=Z, y=y, ids=ids, features=Z, before=before[0], plain=plain, l2=s.l2, seed=s.seed
    )
    return sample, before.mean(axis=0)


def measure_suspects(
    slices: Slices,
    sample: MeasuredSample,
    *,
    top: int = TOP,
    always: Collection[int] = (),
    same: SaySame = equal_but_for_sign,
) -> list[Suspect]:
    """Return at most ``top`` suspects among the slices, one per feature, the strongest first.

    Parameters
    ----------
    slices, sample
        From ``find_slices`` on the sample of :func:`measured_sample`.
    top
        Each suspect costs one fit of the probe.
    always
        Features that are listed whatever their strength, if they have a usable cut.
    same
        Whether two columns say the same of the rows, so that they are one suspect.

    """
    strength = slices.slice_strength()
    numbers = {int(slices.feature[k]): int(k) for k in strongest(slices, len(strength), always)}
    groups = grouped([*numbers], sample.Z, same, top=top, always=always)
    measured = (
        replace(_measure(slices, numbers[first], float(strength[numbers[first]]), sample), same=tuple(others))
        for first, *others in groups
    )
    return list(measured)


def _measure(slices: Slices, k: int, strength: float, sample: MeasuredSample) -> Suspect:
    """Refit with the slice balanced and compare on held-out rows."""
    y, C = sample.y, sample.before.shape[1]
    j = int(slices.feature[k])
    inside = sample.Z[:, j] > slices.cut[k]
    balanced = class_balance(y, C) * slices.factor(k, inside, y)
    right_before = (sample.before.argmax(axis=1) == y).astype(float)
    right_after = (_cross_fit(sample, balanced).argmax(axis=1) == y).astype(float)
    right_plain = (sample.plain.argmax(axis=1) == y).astype(float)
    old, new = _cells(right_before, inside, y, C), _cells(right_after, inside, y, C)
    count = _count(inside, y, C)
    base = max(_worst(cells, count) for cells in (old, _cells(right_plain, inside, y, C)))
    reached = _worst(new, count)
    everything = np.ones(len(y), bool)
    return Suspect(
        feature=j,
        gap=Gap(float(sample.X[~inside, j].max()), float(sample.X[inside, j].min())),
        share=float(inside.mean()),
        share_by_class=slices.above[k],
        accuracy_inside=old[:, 1],
        accuracy_outside=old[:, 0],
        gain=reached[0] - base[0],
        gain_rows=min(reached[1], base[1]),
        small_cells=_small_cells(count),
        cost=class_mean(right_before, y, everything, C) - class_mean(right_after, y, everything, C),
        strength=strength,
    )


def _cross_fit(sample: MeasuredSample, w: Floats) -> Floats:
    """Return probabilities (n, C) of models trained with weights ``w`` on the half without the row."""
    half = halves(sample.ids, sample.seed, Split.FIRST)
    return cross_fit_halves(sample.features, sample.y, half, w, sample.before.shape[1], l2=sample.l2)


def _count(inside: npt.NDArray[np.bool_], y: Integers, C: int) -> Float64:
    return np.bincount(y * 2 + inside, minlength=2 * C).reshape(C, 2).astype(float)


def _cells(right: Floats, inside: npt.NDArray[np.bool_], y: Integers, C: int) -> Float64:
    """Return the accuracy per class and side, shape (C, 2), outside first; NaN without rows."""
    count = _count(inside, y, C)
    total = np.bincount(y * 2 + inside, right, minlength=2 * C).reshape(C, 2)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def _worst(cells: Floats, count: Float64) -> tuple[float, int]:
    """Return the smallest accuracy of the cells that have enough rows, and its rows; of all that occur if
    none has."""
    enough = count >= MIN_CELL_ROWS
    compared = np.where(enough if enough.any() else count > 0, cells, np.inf)
    worst = int(compared.argmin())
    return float(compared.flat[worst]), int(count.flat[worst])


def _small_cells(count: Float64) -> tuple[int, ...]:
    """Return the rows of the cells with too few of them, where others have enough."""
    if count.max() < MIN_CELL_ROWS:
        return ()
    return tuple(sorted(count[(count > 0) & (count < MIN_CELL_ROWS)].astype(int).tolist()))
