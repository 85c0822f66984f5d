"""Trainers by name, built in or installed, and the parameters of the one that a recipe or a command names."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from connectors.foundation.messages import nearest
from engine.core.errors import InputError
from engine.core.suggestions import explain
from engine.recipe.estimators import LIBRARIES
from engine.recipe.objectives import CROSS_ENTROPY
from engine.recipe.trainers.base import RefusedModelError, TrainParams
from engine.recipe.trainers.erm import BaselineParams, ErmParams, ResampleParams
from engine.recipe.trainers.phases import BoostedParams, DfrParams, JttParams
from engine.recipe.trainers.robust import DoroParams, GdroParams, StepwiseParams
from engine.recipe.training_plugins import RULES, RulePlugin, find_plugin, plugin_names

LATER_KEYS: Mapping[str, Any] = MappingProxyType(
    {
        "objective": CROSS_ENTROPY,
        "target": None,
        "model_params": {},
        "schedule": "constant",
        "warmup": 0.0,
        "clip": None,
        "patience": None,
        "reproducible": "exact",
        "amp": False,
    }
)
"""Keys that came later, with defaults under which a training is the one it was without them."""

DEFAULT_TRAINER = "erm"
"""ERM with the published weights: they already carry what was inferred about groups, and stay at class
balance where the evidence is weak."""
TRAINERS: Mapping[str, type[TrainParams]] = MappingProxyType(
    {
        "erm": ErmParams,
        "erm_plain": BaselineParams,
        "erm_class_balanced": BaselineParams,
        "gdro": GdroParams,
        "cvar_doro": DoroParams,
        "chi2_dro": DoroParams,
        "resample": ResampleParams,
        "dfr": DfrParams,
        "jtt": JttParams,
        "boosted_cvar": BoostedParams,
    }
)


MODEL_COLUMNS = (
    "logistic, mlp",
    "package:factory (torch)",
    "hf:FOLDER",
    *(f"{library}:..." for library in LIBRARIES),
)


def model_table(*, markdown: bool = False) -> str:
    """Return the table of the models that each trainer accepts, for messages and the documentation.

    Trainers that accept the same models share a line.
    """
    by_cells: dict[tuple[str, ...], list[str]] = {}
    for name, kind in TRAINERS.items():
        estimators = "no" if kind.refuses_estimators else "yes"
        cells = ("yes", kind.accepts_factories, "yes", *[estimators for _ in LIBRARIES])
        by_cells.setdefault(cells, []).append(f"`{name}`" if markdown else name)
    rows = [("`trainer`" if markdown else "trainer", *MODEL_COLUMNS)]
    rows += [(", ".join(names), *cells) for cells, names in by_cells.items()]
    if markdown:
        lines = [f"| {' | '.join(row)} |" for row in rows]
        return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join(lines)


def parse_params(values: Mapping[str, Any], place: str = "train") -> TrainParams:
    """Return the parameters of the trainer ``values["trainer"]``, or of erm if there is no such key.

    Raises InputError with a line for each fault: the key, the value and the nearest match.
    """
    values = {"trainer": DEFAULT_TRAINER, **values}
    name = str(values["trainer"])
    kind = params_class(name)
    if kind is None:
        names = [*TRAINERS, *plugin_names(RULES)]
        hint = nearest(name, names) or f" Known trainers: {', '.join(names)}."
        raise InputError(f"{place}.trainer: there is no trainer {name!r}.{hint}")
    known = kind.model_fields
    for key in values:
        others = [other for other, built_in in TRAINERS.items() if key in built_in.model_fields]
        if key not in known and others:
            raise InputError(
                f"{place}: {key}: trainer {name} has no such key; it belongs to {', '.join(others)}. "
                f"Name the trainer, or remove the key."
            )
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        text = explain(error, kind, place)
        if any(isinstance(fault.get("ctx", {}).get("error"), RefusedModelError) for fault in error.errors()):
            text += f" Which trainer accepts which model:\n{model_table()}"
        raise InputError(text) from None


def params_class(name: str) -> type[TrainParams] | None:
    """Return the class of a trainer's parameters: a built-in one, or that of an installed rule; else None.

    Raises InputError for a rule whose parameters are not a trainer's.
    """
    if name in TRAINERS:
        return TRAINERS[name]
    plugin = find_plugin(RULES, name, RulePlugin)
    if plugin is None:
        return None
    kind: type[TrainParams] = plugin.params
    if not issubclass(kind, StepwiseParams) or "trainer" not in kind.model_fields:
        raise InputError(
            f"train.trainer {name}: the parameters of this installed rule, {kind.__name__}, must derive from "
            f'engine.recipe.trainers.StepwiseParams and have the key `trainer: Literal["{name}"] = "{name}"`.'
        )
    return kind


def check_target(params: TrainParams, place: str) -> None:
    """Raise InputError for a regression on a version without the column that it predicts."""
    if params.task == "regression" and params.target is None:
        raise InputError(
            f"{place}: objective {params.objective} predicts a number: set {place}.target to a numeric "
            f"column of the version that is not a feature."
        )
