"""The Synthetic dataset of GRASP (Zeng et al. 2022, section C.1 and figure 1), row for row.

Ten Gaussians of 100 points. The text gives variance 0.01; the published tables come from 0.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_random_state, shuffle

VARIANCE = 0.1
ROWS_PER_CENTRE = 100
N_TRAIN, N_VALIDATION = 600, 200
FLIPPED = 30  # 5 % of the training rows

# (class, group, centre), in the order in which the seed's numbers are used up: the majorities
# of both classes first. With any other order the published feature-space figures do not come out.
CENTRES = (
    *((0, 0, centre) for centre in ((0, 5), (0, 3), (0, 2), (0, 1))),
    *((1, 1, centre) for centre in ((1, 5), (1, 3), (1, 2), (1, 1))),
    (0, 2, (1, 4)),
    (1, 3, (0, 4)),
)


@dataclass(frozen=True)
class Synthetic:
    """X (n, 2) float64, class y (n,), true group (n,): majority = class, minority = 2 + class."""

    X: npt.NDArray[np.float64]
    y: npt.NDArray[Any]
    group: npt.NDArray[Any]

    def __getitem__(self, rows: slice) -> Synthetic:
        return Synthetic(self.X[rows], self.y[rows], self.group[rows])

    @property
    def train(self) -> Synthetic:
        """The first 600 rows, those a probe learns from."""
        return self[:N_TRAIN]

    @property
    def inferred(self) -> Synthetic:
        """Train and validation: the 800 rows that are clustered together."""
        return self[: N_TRAIN + N_VALIDATION]

    @property
    def test(self) -> Synthetic:
        """The last 200 rows."""
        return self[N_TRAIN + N_VALIDATION :]


def synthetic(seed: int = 123, *, contaminated: bool = False) -> Synthetic:
    """All 1,000 rows in shuffled order.

    ``contaminated`` flips the label of 5 % of the training rows, drawn with twice the seed (246 in
    the paper); the flipped rows of each class count as a group of their own (4 + new class).
    """
    random = check_random_state(seed)
    deviation = np.sqrt(VARIANCE)
    X = np.concatenate([random.normal(centre, deviation, (ROWS_PER_CENTRE, 2)) for _, _, centre in CENTRES])
    y = np.repeat([label for label, _, _ in CENTRES], ROWS_PER_CENTRE)
    group = np.repeat([group for _, group, _ in CENTRES], ROWS_PER_CENTRE)
    X, y, group = shuffle(X, y, group, random_state=seed)
    if contaminated:
        flipped = check_random_state(2 * seed).choice(N_TRAIN, FLIPPED, replace=False)
        y[flipped] = 1 - y[flipped]
        group[flipped] = 4 + y[flipped]
    return Synthetic(X, y, group)
