"""Objectives that a recipe may name as ``train.params.objective``: ``NAME`` or ``NAME:NUMBER``.

An objective says what a model answers, a class or a number, and which loss of a row training makes small.
The losses are in :mod:`engine.training.objectives`; installed packages add objectives by an entry point of
the group ``rowsieve.training_objectives``, whose value is an :class:`ObjectivePlugin`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from connectors.foundation.messages import nearest
from engine.recipe.training_plugins import OBJECTIVES, find_plugin, plugin_names

Task = Literal["classification", "regression"]
CROSS_ENTROPY, SQUARED, PINBALL = "cross_entropy", "squared", "pinball"
BUILT_IN: Mapping[str, Task] = MappingProxyType(
    {CROSS_ENTROPY: "classification", SQUARED: "regression", PINBALL: "regression"}
)
EXAMPLES = ("cross_entropy", "squared", "pinball:0.9")


@dataclass(frozen=True)
class ObjectivePlugin:
    """An objective of another package."""

    task: Task
    """Whether it reads class indices or the numbers of ``target``."""
    make: Any
    """Called as ``make(number)`` with the number behind the colon, or None without one; returns an
    :class:`engine.training.objectives.Objective`, or raises ValueError for a number that it does not take."""


@dataclass(frozen=True)
class NamedObjective:
    """An objective as a recipe names it."""

    name: str
    number: float | None
    """The number behind the colon; None without one."""
    task: Task
    plugin: ObjectivePlugin | None = None
    """The installed plugin; None for a built-in objective."""


def parse_objective(text: str) -> NamedObjective:
    """Return the objective of a recipe's text. Raises ValueError for any other text."""
    name, colon, behind = text.partition(":")
    number = None
    if colon:
        number = _number(text, behind)
    if name in BUILT_IN:
        _check_number(text, name, number)
        return NamedObjective(name, number, BUILT_IN[name])
    plugin = find_plugin(OBJECTIVES, name, ObjectivePlugin)
    if plugin is None:
        known = [*BUILT_IN, *plugin_names(OBJECTIVES)]
        hint = nearest(name, known) or f" There are: {', '.join([*EXAMPLES, *known[len(BUILT_IN) :]])}."
        raise ValueError(f"there is no objective {name!r}.{hint}")
    if plugin.task not in get_args(Task):
        raise ValueError(f"objective {name!r}: the installed package says the task {plugin.task!r}")
    try:
        plugin.make(number)
    except ValueError:
        raise
    except Exception as error:  # a plugin may raise anything
        raise ValueError(
            f"objective {text!r}: the installed package raised {type(error).__name__}: {error}"
        ) from None
    return NamedObjective(name, number, plugin.task, plugin)


def _number(text: str, behind: str) -> float:
    try:
        found = float(behind)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ValueError(f"objective {text!r}: {behind!r} is not a number")
    return found


def _check_number(text: str, name: str, number: float | None) -> None:
    if name != PINBALL:
        if number is not None:
            raise ValueError(f"objective {text!r}: {name} takes no number. Write {name} alone")
    elif number is None or not 0 < number < 1:
        raise ValueError(
            f"objective {text!r}: give the quantile to predict, between 0 and 1, as in pinball:0.9"
        )
