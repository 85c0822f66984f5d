"""The objective of a training, built in or of an installed package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from engine.recipe.objectives import CROSS_ENTROPY, PINBALL, SQUARED, parse_objective
from engine.training.objectives.base import Objective
from engine.training.objectives.losses import CrossEntropy, Pinball, Squared
from operators.base import OperatorError

BUILT_IN: Mapping[str, Callable[[Any], Objective]] = MappingProxyType(
    {CROSS_ENTROPY: lambda _: CrossEntropy(), SQUARED: lambda _: Squared(), PINBALL: Pinball}
)


def objective_of(text: str) -> Objective:
    """Return the objective that a recipe names. Raises OperatorError for an installed one that is none."""
    named = parse_objective(text)
    if named.plugin is None:
        return BUILT_IN[named.name](named.number)
    made = named.plugin.make(named.number)
    if not isinstance(made, Objective):
        raise OperatorError(
            f"train.objective {text}: the installed package made a {type(made).__name__}, which lacks the "
            f"method losses(outputs, y). See engine.training.objectives.Objective."
        )
    return made
