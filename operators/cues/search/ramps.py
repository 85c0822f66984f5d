"""Limits between which each measurement of a shortcut opens the gate of the robust weights.

The gate is the trust in the robust weights, from 0 (shut) to 1 (open). Each measurement is mapped to [0, 1]
by a ramp, and a gate is the product of its ramps, so that one measurement alone can shut it. Measurements are
high on tables with a strong shortcut; honest tables fail at least one, most of them several
(tests/paper/REAL.md has the figures). There are five sets of ramps, for five kinds of shortcut, and the most
open gate counts (``Evidence.gate``):

- ``RAMPS``: a shortcut in single features. Slices of single features agree with the twins (see
  :mod:`operators.cues.models.twins`), and the robust weights gain accuracy on held-out rows.
- ``SPREAD_RAMPS``: a shortcut that many features carry together, as in embeddings. Slices agree with the
  twins only in part; the gain is that confident mistakes are put right.
- ``REPEATED_RAMPS``: a shortcut that many features repeat, as the pixels of an image do, in a table with few
  or damaged rows, of which mistakes are not put right on held-out rows. Models are sure of their mistakes,
  slices agree with the twins, and the other features tell the side of the strongest one, or too few rows
  say whether they do.
- ``SINGLE_RAMPS``: a shortcut in one leading column that is independent of the other columns, given the
  label. If the others say that it is not, the first two gates are shut as well, unless the features are
  principal components.
- ``COLUMN_RAMPS``: a column whose values stand for the classes, of more than two classes; of two classes
  with ``COLUMN_OF_TWO_RAMPS``, where some values stand for none, or where held-out rows clearly favour it
  (``decision.choice``). If it is strong and the others say that it is no shortcut, the first three gates are
  shut as well.

Data cannot tell whether an honest feature that looks like a shortcut is one. The settings ``spurious`` and
``legitimate`` exist for that.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

Measurement = Literal[
    "agreement",
    "mistake_confidence",
    "crispness",
    "recovery",
    "error",
    "cost",
    "gain",
    "righted",
    "price",
    "classes",
    "exchange",
    "share_support",
    "slice_strength",
    "slice_minority",
    "slice_label_accuracy",
    "slice_ratio",
    "slice_dependence",
    "slice_unevenness",
    "slice_support",
    "slice_spread_support",
    "slice_rival",
    "column_strength",
    "column_minority",
    "column_label_accuracy",
    "column_ratio",
    "column_dependence",
    "column_unevenness",
    "column_support",
    "column_share_with_class",
    "relative_error",
    "slice_dominance",
]
"""Names of the measurements of ``evidence.Evidence``, and of two that it derives (``Evidence.ramps``)."""
Ramps: TypeAlias = dict[Measurement, tuple[float, float]]

RAMPS: Ramps = {
    "agreement": (0.5, 0.6),
    "mistake_confidence": (0.28, 0.35),
    "crispness": (0.84, 0.87),
    "recovery": (0.45, 0.55),
    "error": (0.25, 0.20),
    "gain": (0.005, 0.025),
    "cost": (0.18, 0.10),
    "exchange": (0.05, 0.09),
    "share_support": (0.0, 1.0),
}
"""Ramps of a shortcut in single features: name of a measurement -> the value at which it shuts the gate, and
the value at which it opens it."""
SPREAD_RAMPS: Ramps = {
    "agreement": (0.9, 0.8),
    "mistake_confidence": (0.30, 0.37),
    "crispness": (0.86, 0.89),
    "recovery": (0.5, 0.6),
    "error": (0.20, 0.15),
    "gain": (-0.3, -0.2),
    "righted": (0.01, 0.04),
    "exchange": (0.05, 0.09),
    "share_support": (0.0, 1.0),
}
"""Ramps of a shortcut that no single feature carries, so that slices and twins do not agree in full."""
SPREAD_NEEDS: Ramps = {"agreement": (0.53, 0.6), "gain": (0.1, 0.2)}
"""Ramps of which a spread shortcut needs one: the slices of its many features agree with the twins in part,
or balancing one slice gains much. Without either, confident mistakes are hard rows of an honest table."""
SPREAD_NEEDS_OF_MANY: Ramps = SPREAD_NEEDS | {"agreement": (0.4, 0.46)}
"""The same for more than two classes, of which a slice tells two apart."""
REPEATED_RAMPS: Ramps = {
    "agreement": (0.6, 0.68),
    "mistake_confidence": (0.42, 0.46),
    "crispness": (0.94, 0.953),
    "error": (0.18, 0.15),
    "exchange": (0.04, 0.07),
    "slice_strength": (0.36, 0.42),
    "slice_dominance": (0.77, 0.72),
    "slice_dependence": (0.7, 0.8),
    "share_support": (0.0, 1.0),
}
"""Ramps of a shortcut that many features repeat. ``recovery`` and ``gain`` have no part: where rows are few,
models with the robust weights learn little from the rows that break it, and damaged ones they never learn. An
honest column on which models lean as surely has a higher strength, or models are less sure of mistakes.
``slice_dependence`` is 1 where too few rows can say it, and so opens this gate and those of ``NOT_NOISE`` and
``GAINS_OR_DEPENDS``: in 28 of the 54 runs of digits with a cue (fifteenth study)."""
CRISP: Ramps = {"crispness": (0.93, 0.95), "exchange": (0.36, 0.28)}
"""Ramps of which both stand in for ``SPREAD_NEEDS``, where a shortcut is rotated into all features: the twins
have one crisp rule, and the few rows that break it cost several others each. Honest hard rows cost fewer."""
SINGLE_RAMPS: Ramps = {
    "slice_strength": (0.4, 0.5),
    "slice_minority": (0.22, 0.18),
    "slice_label_accuracy": (0.08, 0.15),
    "slice_dependence": (0.58, 0.54),
    "slice_ratio": (-0.35, -0.2),
    "slice_unevenness": (1.45, 1.28),
    "error": (0.25, 0.20),
    "gain": (0.03, 0.06),
    "exchange": (0.03, 0.05),
    "share_support": (0.0, 1.0),
}
"""Ramps of a shortcut in one column that is independent of the others, given the label, which tell the label
as well. ``cost`` has no part: balancing costs much wherever the other columns tell little."""
COLUMN_RAMPS: Ramps = {
    "column_strength": (0.3, 0.4),
    "column_minority": (0.26, 0.22),
    "column_label_accuracy": (0.08, 0.15),
    "column_dependence": (0.58, 0.54),
    "column_ratio": (-0.35, -0.2),
    "column_unevenness": (1.45, 1.28),
    "relative_error": (0.5, 0.4),
    "share_support": (0.0, 1.0),
}
"""Ramps of a column whose values stand for the classes, of more than two classes. Whether the rows that break
it gain is decided on held-out rows, with its own weights (``decision.decision``)."""
COLUMN_OF_TWO_RAMPS: Ramps = COLUMN_RAMPS | {"column_strength": (0.4, 0.5), "column_minority": (0.22, 0.18)}
"""The same for two classes where twins and slices have found nothing, with the limits of ``SINGLE_RAMPS``."""
NOT_NOISE: Ramps = {
    "slice_strength": (0.70, 0.76),
    "slice_ratio": (0.0, 0.06),
    "slice_dependence": (0.58, 0.62),
    "gain": (0.12, 0.2),
}
"""Ramps of which the strongest column of two classes needs one: with wrong labels the rows that contradict an
honest column are mostly wrong themselves, so that the others tell nothing of them (ratio 0 and less) and the
weights put few of them right."""
GAINS_OR_DEPENDS: Ramps = {"gain": (0.06, 0.08), "slice_dependence": (0.58, 0.62)}
"""Ramps of which the strongest column of two classes needs one. Honest columns that are independent of the
others, given the label, look like a shortcut in all but what the weights gain on held-out rows."""
SLICE_VETO = (0.65, 0.75)
"""Strengths between which the other columns come to be needed for any gate."""
NO_STRONG_SLICE: Ramps = {"exchange": (0.1, 0.15)}
"""Ramp of a shortcut of two classes where no slice of a single column is strong. Wrong labels on an honest
table look like one: the rows that the weights put right are the wrong ones, and each costs ten others
(twenty-first study)."""
ALL_WITH_CLASS = 0.98
"""Share of the rows whose values stand for a class, from which a slice shows a column of two classes too."""
MANY_CLASSES_GAIN = (0.02, 0.05)
"""Gain that stands in for ``recovery`` with more than two classes: the least of many noisy figures is low."""
BOLD_RAMPS: Ramps = {"recovery": (0.3, 0.5), "cost": (0.08, 0.06), "error": (0.30, 0.25)}
"""Ramps of ``robustness: bold``, which balances the slices unless one of these speaks against it."""
SOME_EVIDENCE = (0.1, 0.2)
"""Gate up to which a rise on held-out rows has no effect, and from which it has all."""
SURE_COLUMN = 0.5
"""Gate of a column of two classes from which it may be balanced although twins and slices find nothing."""
LEAST_PART = 0.5
"""Part of the robust factor below which nothing is followed: the evidence is weak. A little of it weighs up
wrong labels, where these are what models mistake, or halves an honest column, and hardly moves a model that
relies on a shortcut."""


def ramp(value: float, shut: float, open_: float) -> float:
    """Return 0 at ``shut``, 1 at ``open_``, linear between; either may be the larger one."""
    return float(np.clip((value - shut) / (open_ - shut), 0.0, 1.0))
