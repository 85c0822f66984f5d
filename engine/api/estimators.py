"""The methods as scikit-learn estimators, for use without a recipe.

Each name is loaded when it is first used, since some need torch or FAISS.

Examples
--------
>>> import numpy as np
>>> from rowsieve.estimators import DBSCAN
>>> points = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [99.0]])
>>> DBSCAN(eps=0.5, min_samples=2).fit(points).labels_.tolist()
[0, 0, 0, 1, 1, 1, -1]

"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from operators.dbscan import DBSCAN
    from operators.dckm import DecorrelatedKMeans
    from operators.eos import EntropicOutlierSparsification
    from operators.grasp import GroupInference
    from operators.neighbours import NeighbourGraph
    from operators.splits import ConstrainedKernelKMeans

__all__ = [
    "DBSCAN",
    "ConstrainedKernelKMeans",
    "DecorrelatedKMeans",
    "EntropicOutlierSparsification",
    "GroupInference",
    "NeighbourGraph",
]

_PACKAGES = {
    "DBSCAN": "operators.dbscan",
    "ConstrainedKernelKMeans": "operators.splits",
    "DecorrelatedKMeans": "operators.dckm",
    "EntropicOutlierSparsification": "operators.eos",
    "GroupInference": "operators.grasp",
    "NeighbourGraph": "operators.neighbours",
}


def __getattr__(name: str) -> Any:
    if name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PACKAGES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
