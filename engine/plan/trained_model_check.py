"""Checks that the model of the section ``train`` can be trained here, before a run prepares its rows."""

from __future__ import annotations

from engine.core.errors import InputError
from engine.core.policy import current_policy
from engine.recipe.estimators import is_estimator, missing_library
from engine.recipe.pretrained import is_packaged, is_pretrained, missing_pretrained
from engine.recipe.recipe import Recipe
from operators.base import OperatorError
from operators.factories import check_allowed
from operators.models.spec import PRETRAINED


def check_trained_model(recipe: Recipe) -> None:
    """Raise InputError if the model to train would import a module that the operator does not allow, or needs
    a library that is not installed.

    Otherwise the training would say so when the version is published.
    """
    if recipe.train is None:
        return
    _check_model(recipe.train.params.get("model"), "train.params.model")
    search = recipe.train.search
    for model in search.space.get("model", []) if search is not None else []:
        _check_model(model, "train.search.space.model")


def _check_model(model: object, key: str) -> None:
    """Raise InputError if one model cannot be trained. ``key``: where the recipe names it."""
    if not isinstance(model, str):
        return
    if is_estimator(model):
        if text := missing_library(model):
            raise InputError(text)
    elif is_pretrained(model):
        if not is_packaged(model):
            current_policy().check_path(key, model.removeprefix(PRETRAINED))
        if text := missing_pretrained(model):
            raise InputError(text)
    elif ":" in model:
        try:
            check_allowed(model, key)
        except OperatorError as error:
            raise InputError(str(error)) from None
