"""Answers of the recipe on suspected shortcuts: as positions of features, and checked against the sample.

``references`` reads a single name. The answers together are part of the settings of the weights
(``settings_of``). Whether the rows of the sample have what a name asks for is known only once they are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from operators.arrays import Floats
from operators.base import OperatorError
from operators.cues.named.recipe_text import yaml_reference
from operators.cues.named.references import FeatureColumns
from operators.cues.params import CuesParams, Reference
from operators.cues.settings import CueSettings, Named
from operators.cues.sides.sides import Sides

Answer = Literal["open", "spurious", "legitimate"]


@dataclass(frozen=True)
class Answers:
    """The positions of the features that the recipe answers for."""

    spurious: frozenset[int]
    legitimate: frozenset[int]

    @classmethod
    def of(cls, params: CuesParams, columns: FeatureColumns) -> Answers:
        """Return the answers of a recipe."""
        return cls(_positions(params.spurious, columns), _positions(params.legitimate, columns))

    def answer(self, position: int) -> Answer:
        """Return what the recipe says of a feature."""
        if position in self.spurious:
            return "spurious"
        return "legitimate" if position in self.legitimate else "open"


def settings_of(params: CuesParams, columns: FeatureColumns, max_rows: int, seed: int) -> CueSettings:
    """Return the settings of the weights, with the answers of the recipe as positions of features."""
    return CueSettings(
        setting=params.robustness,
        spurious=tuple(columns.named(reference) for reference in params.spurious),
        legitimate=Answers.of(params, columns).legitimate,
        columns=columns.source_columns(),
        max_named_cost=params.max_named_cost,
        cap=params.cap,
        min_effective=params.min_effective_share,
        max_rows=max_rows,
        seed=seed,
    )


def check_categories(spurious: Sequence[Named], X: Floats, columns: FeatureColumns) -> None:
    """Raise OperatorError where several columns are named as one category and are not one-hot."""
    for named in spurious:
        block = X[:, list(named.columns)]
        if named.one_of:
            continue
        if len(named.columns) > 1 and not (np.isin(block, (0, 1)).all() and (block.sum(axis=1) <= 1).all()):
            first, last = columns.name(named.columns[0]), columns.name(named.columns[-1])
            column = first.rpartition("[")[0] or first
            raise OperatorError(
                f"operators.cues.spurious: the {len(named.columns)} features {first} to {last} are named as "
                f"one category, but their values are not one-hot. Name single features, such as {first}, or "
                f"words if `{column}` is a text, as {{column: {column}, words: [...]}}. "
                "`rowsieve cues OUTPUT` lists suspects of both kinds."
            )


def undivided_names(
    params: CuesParams, settings: CueSettings, balanced: Sequence[Sides], X: Floats
) -> list[str]:
    """Return the shortcuts of the recipe that do not divide the sample, so that nothing can be balanced.

    They are written as in the recipe.

    Parameters
    ----------
    params, settings
        The names as the recipe has them, and as positions of features, in the same order.
    balanced
        Sides of the shortcuts that are balanced.
    X
        Features of the sample, shape (n, d).

    """
    divided = {sides.columns for sides in balanced}
    found = []
    for reference, named in zip(params.spurious, settings.spurious, strict=True):
        x = X[:, named.columns[0]]
        is_divided = any(set(one) <= set(named.columns) for one in divided)
        if not is_divided or (named.cut is not None and not x.min() <= named.cut < x.max()):
            found.append(yaml_reference(reference))
    return found


def _positions(references: Sequence[Reference], columns: FeatureColumns) -> frozenset[int]:
    return frozenset(position for reference in references for position in columns.answered(reference))
