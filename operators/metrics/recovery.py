"""Agreement of inferred groups and outliers with the truth, if the truth is known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from sklearn.metrics import adjusted_rand_score

adjusted_rand_index = adjusted_rand_score


@dataclass(frozen=True)
class GroupRecovery:
    """Adjusted Rand index (ARI) of inferred groups, and that of the class label as group."""

    ari: float
    floor: float | None
    """ARI of "group := class label", which useful groups must exceed; None if no class labels were given."""


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
    truth : (n,) array
        True group of each row, any values.
    labels : (n,) array
        Inferred group. All noise (-1) counts as one cluster, as in the tables of GRASP.
    classes : (n,) array, optional
        Class label of each row, for the floor.

    Raises
    ------
    ValueError
        The lengths differ.
    """
    truth = np.asarray(truth)
    floor = None if classes is None else float(adjusted_rand_index(truth, np.asarray(classes)))
    return GroupRecovery(ari=float(adjusted_rand_index(truth, np.asarray(labels))), floor=floor)


def outlier_precision_recall(truth: npt.ArrayLike, flagged: npt.ArrayLike) -> PrecisionRecall:
    """Return precision and recall of flagged rows.

    Parameters
    ----------
    truth, flagged : (n,) array of bool
        True outliers, and rows that were flagged.

    Raises
    ------
    ValueError
        The lengths differ.

    Examples
    --------
    >>> from operators.metrics import outlier_precision_recall
    >>> outlier_precision_recall([True, True, False, False], [True, False, False, False])
    PrecisionRecall(precision=1.0, recall=0.5)
    """
    truth, flagged = np.asarray(truth, bool), np.asarray(flagged, bool)
    if truth.shape != flagged.shape:
        raise ValueError(f"truth has shape {truth.shape}, flagged {flagged.shape}; give one entry per row")
    hits = int(np.count_nonzero(truth & flagged))
    precision = hits / max(1, int(np.count_nonzero(flagged)))
    return PrecisionRecall(precision=precision, recall=hits / max(1, int(np.count_nonzero(truth))))
