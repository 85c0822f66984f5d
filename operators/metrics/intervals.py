"""Wilson's interval of a proportion, for arrays; ``scipy.stats`` has it for one proportion at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from operators.arrays import Float64


def wilson_interval(
    successes: npt.ArrayLike, n: npt.ArrayLike, level: float = 0.95
) -> tuple[Float64, Float64]:
    """Return the score interval of a proportion (Wilson 1927).

    Unlike p +- z sqrt(p (1 - p) / n) it stays within [0, 1] and has a width above 0 at p = 0 and 1.

    Parameters
    ----------
    successes : counts, or sums of values in [0, 1], each at most its ``n``.
    n : numbers of rows; for 0 rows the interval is [0, 1].
    level : probability that the interval holds the true share, in (0, 1).

    Returns
    -------
    Lower and upper ends, in [0, 1].

    Raises
    ------
    ValueError : a count is negative or more than n, or level out of range.
    """
    k, n = np.asarray(successes, np.float64), np.asarray(n, np.float64)
    if not 0 < level < 1:
        raise ValueError(f"level is {level!r}; give a number between 0 and 1, such as 0.95")
    if (k < 0).any() or (k > n * (1 + 1e-12)).any():
        raise ValueError("successes must lie between 0 and n")
    z2 = float(ndtri((1 + level) / 2)) ** 2
    p = np.divide(k, n, out=np.zeros(np.broadcast(k, n).shape), where=n > 0)
    middle = (k + z2 / 2) / (n + z2)
    half = np.sqrt(z2) / (n + z2) * np.sqrt(n * p * (1 - p) + z2 / 4)
    # At 0 and n successes one end is exactly 0 or 1; the formula leaves a rounding error.
    return np.where(k <= 0, 0.0, (middle - half).clip(0, 1)), np.where(
        k >= n, 1.0, (middle + half).clip(0, 1)
    )
