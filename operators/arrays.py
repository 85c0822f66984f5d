"""Array types and constants that the operators and the engine share. Importing it needs NumPy alone."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Float32: TypeAlias = npt.NDArray[np.float32]
Float64: TypeAlias = npt.NDArray[np.float64]
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
"""Float32 or float64, of any shape."""
Matrix: TypeAlias = npt.NDArray[np.floating[Any]]
"""(n, p) rows, float32 or float64."""
Integers: TypeAlias = npt.NDArray[np.integer[Any]]
Int64: TypeAlias = npt.NDArray[np.int64]
Index: TypeAlias = npt.NDArray[np.intp]
"""Positions of rows."""
Ids: TypeAlias = npt.NDArray[np.int64]
"""Row ids."""
Mask: TypeAlias = npt.NDArray[np.bool_]
Labels: TypeAlias = npt.NDArray[np.int32]
"""(n,) number of each row's group or cluster, from 0; ``NOISE`` for a row in none."""

NOISE = -1
"""Label of a row that belongs to no group or cluster."""
