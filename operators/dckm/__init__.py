"""Weights that decorrelate features, alone or together with k-means (DCKM)."""

from operators.dckm.estimators import DecorrelatedKMeans, DecorrelationWeights

__all__ = ["DecorrelatedKMeans", "DecorrelationWeights"]
