"""Checks of stored trees. A library's own code follows the indices of a tree without looking at them, so that
a forged one would read memory of other things, or never end."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[Any]


def check_tree(left: Ints, right: Ints, feature: Ints, n_features: int) -> None:
    """Raise ValueError unless every possible row reaches exactly one leaf.

    Parameters
    ----------
    left, right
        (n,) indices of the children of each node; -1 in both for a leaf. Node 0 is the root, and a
        child comes after its parent.
    feature
        (n,) index of the feature that an inner node looks at.
    n_features
        Features of a row.
    """
    n = len(left)
    if not n or right.shape != left.shape or feature.shape != left.shape:
        raise ValueError("a tree has no node, or lists of different lengths")
    inner = left != -1
    if (inner != (right != -1)).any():
        raise ValueError("a node of a tree has one child")
    children = np.concatenate([left[inner], right[inner]])
    parents = np.tile(np.flatnonzero(inner), 2)
    if ((children <= parents) | (children >= n)).any():
        raise ValueError(f"a child of a node lies outside of its tree of {n:,} nodes, or before its parent")
    if (np.bincount(children, minlength=n)[1:] != 1).any():
        raise ValueError("a node of a tree has no parent, or several")
    if ((feature[inner] < 0) | (feature[inner] >= n_features)).any():
        raise ValueError(f"a tree asks for a feature that is none of the {n_features:,}")
