"""The search for a trainer's parameters: values of each key, and how candidates are drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from connectors.foundation.messages import nearest
from engine.core.errors import InputError
from engine.recipe.section import Section
from engine.recipe.yaml_text import check_values, parse_yaml
from operators.values import is_number

if TYPE_CHECKING:
    from engine.recipe.trainers import TrainParams

Sampler = Literal["grid", "random", "tpe"]
PACKAGE, EXTRA = "optuna", "tune"
MAX_CANDIDATES = 10_000
"""Most draws, and cells of a grid. All of them are in memory, and each is trained."""
NOT_SEARCHED = ("trainer", "where", "workers", "resources")
"""Keys that are not parameters of a trainer, or do not change the model."""


@dataclass(frozen=True)
class Range:
    """Numbers from ``low`` to ``high``, drawn evenly on a logarithmic scale; whole ones if both ends are."""

    low: float
    high: float

    @property
    def is_whole(self) -> bool:
        """True if both ends are whole numbers: then only such numbers are drawn."""
        return isinstance(self.low, int) and isinstance(self.high, int)

    def draw(self, generator: np.random.Generator) -> float | int:
        """Draw one number from the range, to four digits."""
        found = float(np.exp(generator.uniform(np.log(self.low), np.log(self.high))))
        if self.is_whole:
            return round(found)
        return min(max(float(f"{found:.4g}"), float(self.low)), float(self.high))  # rounded within the range


Axis = Sequence[Any] | Range


def parse_axis(text: str, place: str) -> Axis:
    """Return the values ``V1,V2`` or the range ``LOW..HIGH`` of one key. Raises InputError."""
    if ".." in text:
        return _range(place, text)
    values = yaml_value(place, f"[{text}]")
    if not values:
        raise InputError(f"{place}: write it as key=value,value, for example lr=0.01,0.1.")
    found: list[Any] = values
    return found


def _range(place: str, text: str) -> Range:
    ends = [yaml_value(place, end.strip()) for end in text.split("..")]
    ends = [float(end) if isinstance(end, str) and is_number(end) else end for end in ends]
    if len(ends) != 2 or not all(map(_is_end, ends)) or ends[0] >= ends[1]:
        raise InputError(f"{place}: write a range as low..high of two numbers above 0, lr=1e-3..1e-1.")
    return Range(*ends)


def _is_end(value: Any) -> bool:
    """Return whether a value is a finite number above 0, which a boolean is not."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def yaml_value(place: str, text: str) -> Any:
    """Return the value of a YAML text, bounded as a recipe is. Raises InputError, which names the place."""
    found = parse_yaml(text, f"{place}: the value")
    check_values(found, place)
    return found


def sampler_named(text: str) -> Sampler:
    """Return a sampler by its name. Raises InputError."""
    known: tuple[Sampler, ...] = ("grid", "random", "tpe")
    for one in known:
        if one == text:
            return one
    raise InputError(f"--sampler {text}: give grid, random or tpe.{nearest(text, known)}")


class SearchSection(Section):
    """Search for parameters of the training. The worst inferred group on validation rows decides."""

    space: dict[str, list[Any] | str] = Field(
        min_length=1,
        description="Key of the trainer -> list of values, or a range `low..high`, which is drawn from on a "
        "logarithmic scale",
    )
    sampler: Sampler | None = Field(
        default=None,
        description="grid: every combination; random: `trials` draws; tpe: `trials` draws that learn from "
        "those before, by Optuna's TPE (the extra `tune`); default: random with `trials`, else grid",
    )
    trials: int | None = Field(default=None, ge=1, le=MAX_CANDIDATES, description="Number of draws")
    seeds: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="Trainings of each candidate, whose mean score counts; default: 3, with a grid 1",
    )
    prune: bool = Field(
        default=False,
        description="Give up poor candidates after each seed: of grid and random the lower half, of tpe "
        "those below the median of the earlier ones (Optuna's MedianPruner)",
    )

    @property
    def axes(self) -> dict[str, Axis]:
        """The space with ranges read. Raises InputError."""
        return {
            key: parse_axis(values, f"train.search.space.{key}") if isinstance(values, str) else values
            for key, values in self.space.items()
        }

    @model_validator(mode="after")
    def _usable(self) -> SearchSection:
        try:
            check_search(self.axes, self.sampler, self.trials, self.seeds, self.prune, IN_RECIPE)
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    def check_values(self, params: TrainParams) -> None:
        """Raise InputError for a key or value that the trainer does not take."""
        check_space(self.axes, params, "train.search.space")


IN_RECIPE = {name: f"train.search.{name}" for name in ("space", "sampler", "trials", "seeds", "prune")}
ON_COMMAND_LINE = {"space": "--grid"} | {
    name: f"--{name}" for name in ("sampler", "trials", "seeds", "prune")
}
"""Names of the options of a search where it is asked for, for errors."""


def check_search(
    axes: Mapping[str, Axis],
    sampler: str | None,
    trials: int | None,
    seeds: int | None,
    prune: bool,
    names: Mapping[str, str],
) -> None:
    """Raise InputError for options that contradict each other, or a sampler whose package is missing."""
    _check_keys(axes, names["space"])
    if sampler == "grid" and trials is not None:
        raise InputError(f"{names['trials']}: a grid trains every combination. Remove it, or draw at random.")
    if sampler in ("random", "tpe") and trials is None:
        raise InputError(f"{names['sampler']} {sampler}: give {names['trials']}, the number of draws.")
    if trials is None:
        for key, axis in axes.items():
            if isinstance(axis, Range):
                raise InputError(
                    f"{names['space']} {key}: a range has no cells; give {names['trials']}, the number of "
                    f"draws."
                )
        lists = [axis for axis in axes.values() if not isinstance(axis, Range)]
        if (cells := prod(map(len, lists))) > MAX_CANDIDATES:
            raise InputError(
                f"{names['space']}: the grid has {cells:,} cells, and at most {MAX_CANDIDATES:,} are "
                f"trained. Give fewer values, or {names['trials']}, a number of draws."
            )
    if prune and n_seeds(trials, seeds) < 2:
        raise InputError(
            f"{names['prune']} leaves out later seeds of poor candidates: give {names['seeds']} 2 or more."
        )
    if sampler == "tpe" and find_spec(PACKAGE) is None:
        raise InputError(
            f"{names['sampler']} tpe: the package {PACKAGE} is not installed. On the machine that starts the "
            f"training: pip install -c deploy/constraints.txt 'rowsieve[{EXTRA}]'; or take random."
        )


def _check_keys(axes: Mapping[str, Axis], space: str) -> None:
    """Raise InputError for a key that is not searched for. ``space``: what the space is called."""
    for key in axes:
        if key in ("objective", "target"):
            raise InputError(f"{space} {key}: losses of several {key}s cannot be compared. Train each alone.")
        if key in NOT_SEARCHED:
            raise InputError(
                f"{space} {key}: {key} is not a parameter to search for. Train with each value alone."
            )


SEEDS = 3
"""Trainings of each drawn candidate: fewer do not distinguish a better one from chance."""


def n_seeds(trials: int | None, seeds: int | None) -> int:
    """Return the number of trainings of each candidate."""
    return seeds or (1 if trials is None else SEEDS)


def check_space(axes: Mapping[str, Axis], params: TrainParams, place: str) -> None:
    """Raise InputError for a key that the trainer does not have, or a value that it does not take."""
    for key, axis in axes.items():
        for value in (axis.low, axis.high) if isinstance(axis, Range) else axis:
            with_values(params, {key: value}, place)


def with_values(params: TrainParams, cell: Mapping[str, Any], place: str = "train") -> TrainParams:
    """Return parameters with the values of a candidate. Raises InputError."""
    # Not at the top: a recipe without a training does not need the trainers.
    from engine.recipe.trainers import parse_params, trainer_of

    given = params.model_dump(mode="json", exclude_unset=True) | {"trainer": trainer_of(params)}
    return parse_params({**given, **cell}, place)
