"""Prefix of a model's name -> the adapter of its library."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from engine.training.libraries.base import Library
from engine.training.libraries.lightgbm_trees import LightGbm
from engine.training.libraries.scikit_learn import ScikitLearn
from engine.training.libraries.xgboost_trees import XGBoost

LIBRARIES: Mapping[str, Library] = MappingProxyType(
    {"sklearn": ScikitLearn(), "xgboost": XGBoost(), "lightgbm": LightGbm()}
)


def library_of(model: str) -> Library:
    """Return the adapter of ``LIBRARY:CLASS``. Raises KeyError for a library that is not listed."""
    return LIBRARIES[model.partition(":")[0]]
