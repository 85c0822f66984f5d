"""Prefix of a model's name -> the adapter of its library."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from engine.recipe.estimators import plugin_of
from engine.training.libraries.base import Library
from engine.training.libraries.lightgbm_trees import LightGbm
from engine.training.libraries.scikit_learn import ScikitLearn
from engine.training.libraries.xgboost_trees import XGBoost
from operators.base import OperatorError

LIBRARIES: Mapping[str, Library] = MappingProxyType(
    {"sklearn": ScikitLearn(), "xgboost": XGBoost(), "lightgbm": LightGbm()}
)


def library_of(model: str) -> Library:
    """Return the adapter of ``LIBRARY:CLASS``, built in or of an installed plugin.

    Raises OperatorError if there is none, or if the plugin's adapter lacks a method of the protocol.
    """
    name = model.partition(":")[0]
    if name in LIBRARIES:
        return LIBRARIES[name]
    plugin = plugin_of(model)
    if plugin is None:
        raise OperatorError(
            f"train.model {model}: no installed package has estimators of {name!r}. Install one on every "
            f"node, or use {', '.join(LIBRARIES)}."
        )
    if not isinstance(plugin.library, Library):
        raise OperatorError(
            f"train.model {model}: the plugin {name!r} is not an engine.training.libraries.Library: it "
            f"lacks one of flavour, distributions, fit, dump and load."
        )
    return plugin.library
