"""Soft environments from twin models that imitate each other's confident held-out mistakes (XRM).

Source: Pezeshki et al., "Discovering environments with XRM", ICML 2024. Twins are trained on two halves
of the rows; a label changes to the held-out twin's prediction with probability (p_max - 1/C) * C / (C -
1) (their equation for p_flip), round after round, so that the twins come to rely on what they share: a
shortcut. Rows that the held-out twin then gets wrong form the environment in which the shortcut fails.
Deviations from the paper: the twins are linear, and labels are flipped between complete fits instead of
between gradient steps. A round draws the flips once, then fits each twin to its optimum by L-BFGS, from its
last solution; ``ROUNDS`` of them stand for the paper's training run. The draws are hashes of row ids, so
rounds do not depend on shards. The membership of an environment stays soft, and several splits are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64, Floats, Integers
from operators.cues.models.draws import flip_draws, halves
from operators.cues.models.half_models import SPLITS, HalfModels, fit_halves, fit_part
from operators.cues.models.linear import predict

ROUNDS = 8


@dataclass(frozen=True)
class Twins:
    """Pairs of linear classifiers, each trained on the half of the rows that the other has not seen.

    Attributes
    ----------
    before
        Class-balanced models ahead of any flip, shape (splits, 2, d + 1, C); model [s, h] saw half h of
        split s.
    after
        The same after the rounds of label flipping.
    seed
        Decides the halves.

    """

    before: Floats
    after: Floats
    seed: int

    @property
    def plain(self) -> HalfModels:
        """The models ahead of any flip."""
        return HalfModels(self.before, self.seed)


def fit_twins(
    Z: Floats,
    y: Integers,
    ids: Integers,
    n_classes: int,
    seed: int,
    *,
    l2: float,
    splits: int = SPLITS,
) -> Twins:
    """Train the twins on standardised rows ``Z`` (n, d) with labels ``y`` (n,) and row ids ``ids`` (n,).

    The cost is ``splits * (ROUNDS + 1)`` fits of the probe at most, as every fit sees half of the rows.
    """
    plain, after = fit_halves(Z, y, ids, n_classes, seed, l2=l2, splits=splits), []
    for s in range(splits):
        half = halves(ids, seed, s)
        parts = [np.flatnonzero(half == h) for h in (0, 1)]
        labels, pair = y, list(plain.coefficients[s])
        for r in range(ROUNDS):
            draws = flip_draws(ids, seed, s, r)
            labels = _imitate(Z, labels, draws, parts, pair)
            pair = [
                fit_part(Z, labels, part, n_classes, l2, old) for part, old in zip(parts, pair, strict=True)
            ]
        after.append(np.stack(pair))
    return Twins(plain.coefficients, np.stack(after), seed)


def _imitate(
    Z: Floats, labels: Integers, draws: Floats, parts: Sequence[Integers], pair: Sequence[Floats]
) -> Integers:
    """Replace labels by the held-out twin's prediction with the paper's flip probability."""
    new = labels.copy()
    C = pair[0].shape[1]
    for h, part in enumerate(parts):
        p = predict(pair[1 - h], Z[part])
        chance = (p.max(axis=1) - 1 / C) * C / (C - 1)
        change = draws[part] < chance
        new[part[change]] = p.argmax(axis=1)[change]
    return new


def environment_factor(p: Floats, y: Integers, mean_error: Floats, n_classes: int) -> Float64:
    """Return the factor within its class, shape (n,), that makes the shortcut independent of the label.

    Parameters
    ----------
    p
        Held-out probabilities of ``Twins.after``, shape (splits, n, C).
    y
        Labels, shape (n,).
    mean_error
        Mean of e = 1 - p_y per split and class on the fitted sample, shape (splits, C).
    n_classes
        C below: classes to which a shortcut may point, at least 2. Those with few rows do not count.

    Notes
    -----
    A row belongs to the environment of mistakes to the degree e. A shortcut that points to each of C classes
    alike is wrong in (C - 1) / C of the rows once it is independent of the label, so this part of the weight
    goes to the mistakes: half of it for two classes. The factor is
    (C - 1) / C * e / mean e + 1 / C * (1 - e) / (1 - mean e), averaged over the
    splits; means are clipped to [.025, .975], which bounds it by 40.

    """
    out, C = np.zeros(len(y)), n_classes
    for s in range(len(p)):
        e = 1.0 - p[s, np.arange(len(y)), y]
        m = np.clip(mean_error[s], 0.025, 0.975)[y]
        out += (C - 1) / C * e / m + (1.0 - e) / (1.0 - m) / C
    return np.asarray(out / len(p))


def mean_errors(p: Floats, y: Integers, n_classes: int) -> Float64:
    """Return the mean of 1 - p_y per split and class, shape (splits, C); 0.5 for a class without rows."""
    count = np.bincount(y, minlength=n_classes)
    rows = np.arange(len(y))
    sums = np.stack([np.bincount(y, 1.0 - p[s, rows, y], minlength=n_classes) for s in range(len(p))])
    return np.asarray(np.where(count > 0, sums / np.maximum(count, 1), 0.5))
