"""Operators of a plan, made from their names and the parameters that the recipe gives them."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from connectors.foundation.messages import nearest
from engine.core.errors import InputError
from engine.core.suggestions import explain
from engine.plan.chain import ENCODE
from engine.recipe.recipe import Recipe
from operators.base import Operator, OperatorError
from operators.factories import check_allowed
from operators.parts.adaptor import NAME as PARTS
from operators.registry import operator_class, operator_names


def build_operator(recipe: Recipe, name: str, params: dict[str, Any]) -> Operator[Any]:
    """Create an operator from its name and parameters. Raises InputError that names the nearest match."""
    try:
        kind = operator_class(name)
    except KeyError:
        hint = nearest(name, operator_names()) or f" Known operators: {', '.join(operator_names())}."
        raise InputError(f"operators.{name}: there is no such operator.{hint}") from None
    if name == PARTS:
        raise InputError(
            f"operators.{name}: the engine adds this operator. Remove the key; operators.split.fit_on and "
            f"source.holdout decide which rows are held out."
        )
    if name == "ingest" and "ingest" in recipe.operators:
        raise InputError("operators.ingest: always runs first; set its options under `source`.")
    try:
        kind = kind.variant(params)
        checked = kind.Params.model_validate(params)
        model = getattr(checked, "model", None)
        if isinstance(model, str) and ":" in model:
            check_allowed(model, f"operators.{name}.model")
        return kind(checked)
    except OperatorError as error:
        raise InputError(str(error)) from None
    except ValidationError as error:
        raise InputError(explain(error, kind.Params, recipe.place, prefix=f"operators.{name}.")) from None


def encode_params(recipe: Recipe, features: tuple[str, ...]) -> dict[str, Any]:
    """Return the parameters of `encode`: the recipe's, and the columns that the section `source` names.

    Raises
    ------
    InputError
        The recipe sets what `source` decides, or sets options of a column that is not a feature.

    """
    given, source = recipe.operators.get(ENCODE, {}), recipe.source
    filled = {
        "features": features,
        "explicit": source.features is not None,
        "label": source.label,
        "classes": source.classes,
    }
    for key in filled:
        if key in given:
            raise InputError(f"operators.encode.{key}: set it under `source` instead.")
    columns = given.get("columns")
    for name in columns if isinstance(columns, dict) else ():
        if name not in features:
            hint = nearest(name, features) or f" The features are: {', '.join(features[:30])}."
            raise InputError(f"operators.encode.columns: {name!r} is not a feature of this recipe.{hint}")
    return {**given, **filled}


def ingest_params(recipe: Recipe, features: tuple[str, ...]) -> dict[str, Any]:
    """Return the parameters of `ingest`, which the section `source` holds."""
    source = recipe.source
    return {
        "label": source.label,
        "features": features or None,
        "classes": source.classes,
        "on_error": source.on_error,
        "max_error_rate": source.max_error_rate,
    }
