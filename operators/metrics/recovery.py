"""Agreement of inferred groups and outliers with the truth, if the truth is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score


@dataclass(frozen=True)
class GroupRecovery:
    """Adjusted Rand index of inferred groups, beside what "group := class label" scores.

    ``floor`` is None where class labels were not given. Groups whose ARI is not above the floor
    tell no more than the label does.
    """

    ari: float
    floor: float | None


@dataclass(frozen=True)
class PrecisionRecall:
    """Precision and recall, in [0, 1]; 0 where nothing was flagged, or nothing was there to find."""

    precision: float
    recall: float


def group_recovery(
    truth: npt.ArrayLike, labels: npt.ArrayLike, classes: npt.ArrayLike | None = None
) -> GroupRecovery:
    """Return the adjusted Rand index (Hubert, Arabie 1985) between true and inferred groups.

    Parameters
    ----------
    truth : (n,) true group of each row, any values.
    labels : (n,) inferred group; all noise (-1) counts as one cluster, as in GRASP's tables.
    classes : (n,), optional: class label of each row, for the floor.

    Raises
    ------
    ValueError : lengths differ.
    """
    truth = np.asarray(truth)
    floor = None if classes is None else float(adjusted_rand_score(truth, np.asarray(classes)))
    return GroupRecovery(ari=float(adjusted_rand_score(truth, np.asarray(labels))), floor=floor)


def outlier_precision_recall(truth: npt.ArrayLike, flagged: npt.ArrayLike) -> PrecisionRecall:
    """Return the share of flagged rows that are true outliers, and the share of true outliers that are
    flagged.

    Parameters
    ----------
    truth, flagged : (n,) bool.

    Raises
    ------
    ValueError : lengths differ.
    """
    truth, flagged = np.asarray(truth, bool), np.asarray(flagged, bool)
    if truth.shape != flagged.shape:
        raise ValueError(f"truth has shape {truth.shape}, flagged {flagged.shape}; give one entry per row")
    hits = int(np.count_nonzero(truth & flagged))
    precision = hits / max(1, int(np.count_nonzero(flagged)))
    return PrecisionRecall(precision=precision, recall=hits / max(1, int(np.count_nonzero(truth))))
