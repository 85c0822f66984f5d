"""Points of a trade-off that are looked for: the baseline, a given strength, and the one that a user chooses.

``baseline`` is the point that all weights are compared with. ``choose`` picks a strength by the mean accuracy
that the user is willing to lose.
"""

from __future__ import annotations

from collections.abc import Sequence

from operators.cues.models.trade_off import TradeOffPoint
from operators.cues.models.weight_path import CLASS_BALANCE, UNWEIGHTED

SAME = 1e-9
"""Difference of strengths that are the same, and slack of the comparison of accuracies."""


def baseline(points: Sequence[TradeOffPoint]) -> TradeOffPoint:
    """Return the point that weights have to beat: the better of no weights and class balance.

    Better is the higher accuracy of the worst group; of equals the higher mean accuracy. This is the only
    baseline of the package: the gate, the curve, the list of suspects and all figures refer to it.

    Parameters
    ----------
    points
        From ``trade_off`` or ``Trials.points``, with the strengths 0 and 1.

    """
    ends = [point for point in points if point.strength in (UNWEIGHTED, CLASS_BALANCE)]
    return max(ends, key=lambda point: (point.worst, point.mean, point.strength))


def point_at(points: Sequence[TradeOffPoint], strength: float) -> TradeOffPoint | None:
    """Return the point of a strength; None where it was not measured."""
    return next((point for point in points if abs(point.strength - strength) < SAME), None)


def choose(points: Sequence[TradeOffPoint], max_mean_loss: float) -> int:
    """Return the position of the largest strength that costs little mean accuracy and no worst group.

    Parameters
    ----------
    points
        From ``trade_off``, in rising order of the strength; at least one.
    max_mean_loss
        Largest loss of mean accuracy against the best strength, from 0 to 1.

    Raises
    ------
    ValueError
        ``max_mean_loss`` is out of range.

    """
    if not 0.0 <= max_mean_loss <= 1.0:
        raise ValueError(f"max_mean_loss is {max_mean_loss}: give a number from 0 to 1, such as 0.02")
    return last_within([point.mean for point in points], [point.worst for point in points], max_mean_loss)


def last_within(means: Sequence[float], worst: Sequence[float], loss: float) -> int:
    """Return the last position whose mean accuracy is at most ``loss`` below the largest.

    Those at which the worst group is worse than at the first position, without weights, are passed over: they
    cost on both sides.
    """
    least = max(means) - loss - SAME
    within = [k for k, mean in enumerate(means) if mean >= least]
    return max([k for k in within if worst[k] >= worst[0] - SAME] or within)
