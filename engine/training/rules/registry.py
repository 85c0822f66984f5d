"""The rule of each trainer, built in or of an installed package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from engine.recipe.trainers import TrainParams, trainer_of
from engine.recipe.training_plugins import RULES, RulePlugin, find_plugin
from engine.training.data.rows import Counts
from engine.training.rules.base import Rule
from engine.training.rules.doro import Chi2Doro, CvarDoro
from engine.training.rules.erm import Erm
from engine.training.rules.gdro import group_dro
from operators.base import OperatorError

BUILT_IN: Mapping[str, Callable[[Any, Counts], Rule]] = MappingProxyType(
    {
        "gdro": group_dro,
        "cvar_doro": lambda params, counts: CvarDoro(params.alpha, params.eps),
        "chi2_dro": lambda params, counts: Chi2Doro(params.alpha, params.eps),
    }
)
"""Trainer -> the function that makes its rule; trainers that are not named here take the mean loss."""


def rule_of(params: TrainParams, counts: Counts) -> Rule:
    """Return the rule by which a trainer weighs the rows of a step.

    Raises OperatorError for train rows that a rule cannot use, and if an installed package makes something
    else than a rule.
    """
    name = trainer_of(params)
    if name in BUILT_IN:
        return BUILT_IN[name](params, counts)
    plugin = find_plugin(RULES, name, RulePlugin)
    if plugin is None:
        return Erm()
    made = plugin.make(params, counts)
    if not isinstance(made, Rule):
        raise OperatorError(
            f"train.trainer {name}: the installed package made a {type(made).__name__}, which lacks one of "
            f"sees_all, state and weigh. See engine.training.rules.Rule."
        )
    return made
