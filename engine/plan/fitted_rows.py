"""Decides which rows operators learn from: all rows, or only those that will be training rows.

Where ``split`` draws rows at random, a row's part follows from what the source holds, so it is known before
anything is fitted. The engine then puts the operator ``parts`` in front of all others; every ``fit`` gets a
reader without validation and test rows, and these are placed afterwards as new rows are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from engine.core.errors import InputError
from engine.plan.sources import check_columns
from engine.recipe.recipe import Recipe
from operators.base import SPLIT, Operator
from operators.parts.adaptor import RowParts, learnt_from
from operators.parts.params import DrawParams, HoldoutParams, PartsParams
from operators.splits.params import RandomParams

ALL = "Operators learn from all rows"


def row_parts(
    recipe: Recipe, chain: Sequence[Operator[Any]], features: Sequence[str]
) -> tuple[RowParts | None, str]:
    """Return the operator that names the rows to learn from, if not all are, and a sentence about them.

    Parameters
    ----------
    recipe
        The checked recipe.
    chain
        The operators, each adapted to the others.
    features
        Source columns that identify a row.

    Raises
    ------
    InputError
        The recipe holds rows out, or has operators learn from training rows only, which its chain cannot.
    """
    _check_holdout(recipe, chain)
    draw, reason = _draw_of(chain)
    spec = recipe.source.holdout
    if draw is None and spec is None:
        return None, f"{ALL}{reason}"
    split = next((operator for operator in chain if operator.name == SPLIT), None)
    params = PartsParams(
        label=recipe.source.label,
        features=tuple(features),
        holdout=None if spec is None else HoldoutParams(**spec.model_dump()),
        draw=draw,
        **({} if split is None else {"resources": split.resources}),
    )
    found = RowParts(params)
    return found, learnt_from(params)


def check_keys(recipe: Recipe, chain: Sequence[Operator[Any]], schema: pa.Schema) -> None:
    """Raise InputError for a key that is not a column, or that is kept for scoring."""
    keys = {f"operators.{operator.name}.key": getattr(operator.params, "key", None) for operator in chain}
    keys["source.holdout.key"] = recipe.source.holdout.key if recipe.source.holdout else None
    for place, key in keys.items():
        check_columns(place, (key,) if key else (), schema)
        if key in recipe.truth.columns:
            raise InputError(
                f"{place}: {key!r} is named under `truth`, for scoring only. Name another column."
            )


def _draw_of(chain: Sequence[Operator[Any]]) -> tuple[DrawParams | None, str]:
    """Return the draw of validation and test rows that precedes all fits; or None, and why there is none."""
    split = next((operator for operator in chain if operator.name == SPLIT), None)
    params = None if split is None else split.params
    if not isinstance(params, RandomParams):
        return None, _optimistic("their parts are drawn by what operators have learnt, or by another rule")
    wanted = params.fit_on
    if wanted == "all":
        return None, _optimistic("operators.split.fit_on is all")
    if not params.validation and not params.test:
        return None, "; `split` draws neither validation nor test rows."
    if wanted is None and params.asks_for_strata:
        return None, _optimistic(
            "operators.split.stratify_by_group draws within groups, which are learnt first"
        )
    unable = next((operator for operator in chain if not operator.can_predict), None)
    if unable is None:
        return DrawParams(validation=params.validation, test=params.test, key=params.key), ""
    if wanted is None:
        return None, _optimistic(f"operators.{unable.name} cannot place rows that it has not learnt from")
    raise InputError(
        f"operators.split.fit_on: operators.{unable.name} cannot place rows that it has not learnt from. "
        f"Leave {unable.name} out, or choose another method; or set operators.split.fit_on to all."
    )


def _optimistic(why: str) -> str:
    return f", validation and test rows included, so that scores on these are optimistic: {why}."


def _check_holdout(recipe: Recipe, chain: Sequence[Operator[Any]]) -> None:
    holdout = recipe.source.holdout
    if holdout is None:
        return
    for operator in chain:
        if not operator.can_predict:
            raise InputError(
                f"source.holdout: operators.{operator.name} cannot place rows that it has not learnt from. "
                f"Leave {operator.name} out, or choose another method; or drop source.holdout."
            )
        for part, share in (("test", holdout.share), ("validation", holdout.validation)):
            if operator.name == SPLIT and share and getattr(operator.params, part, 0):
                raise InputError(
                    f"source.holdout: {part} rows come from it, so operators.split must draw none of its "
                    f"own. Set operators.split.{part}: 0."
                )
