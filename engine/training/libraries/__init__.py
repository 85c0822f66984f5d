"""Libraries whose estimators can be trained: scikit-learn, XGBoost and LightGBM, each behind one adapter."""

from engine.training.libraries.base import FittedEstimator, Library
from engine.training.libraries.registry import library_of

__all__ = ["FittedEstimator", "Library", "library_of"]
