"""The decision of an incremental run: predict, refit or full, taken once from the drift of the new rows.

The planner takes the decision. What has to be computed first, placing the new rows and measuring their drift,
is done by a :class:`DecisionProbe` that the runner passes to the planner. A decision is kept as one file for
each combination of base version, input and rule, so that later plans of the same input are the same.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from connectors.storage import Place, remove_file
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.json_files import read_json, write_json
from engine.plan.increment import Outcome
from engine.plan.model import Plan, PlannedOperator
from operators.base import FEATURES, GRADIENT, GROUP, CannotPredictError
from operators.counts import count
from operators.parts.adaptor import NAME as PARTS

_log = logging.getLogger("rowsieve")
COMPARED = (FEATURES, GRADIENT, GROUP)
"""Columns whose drift is measured, whichever operators add them."""


class _StoredFigure(BaseModel):
    """Form of one figure of drift in a stored decision."""

    model_config = ConfigDict(strict=True)

    name: str
    excess: float
    threshold: float
    over: bool
    p: float = 1.0
    level: float = 0.0
    columns: list[str] = []


class _StoredDecision(BaseModel):
    """Form of the file of a decision; it holds its base version too."""

    model_config = ConfigDict(strict=True)

    outcome: Outcome
    why: str
    drift: list[_StoredFigure]


class DecisionProbe(Protocol):
    """Computes the inputs of a decision. The runner implements it; it holds the output's lease."""

    def place_new_rows(self, plan: Plan, operators: Sequence[PlannedOperator]) -> None:
        """Run operators of a plan whose increment is undecided.

        Raises CannotPredictError if a kept state cannot serve the new rows.
        """

    def measure_drift(self, plan: Plan) -> list[dict[str, Any]]:
        """Return the drift figures of the new rows; see :func:`engine.runs.drift.measure`."""


def decide_outcome(plan: Plan, probe: DecisionProbe) -> dict[str, Any]:
    """Take the decision of an undecided plan and keep it as a file.

    Returns
    -------
    JSON-able: ``outcome`` (see :data:`engine.plan.increment.Outcome`), ``why``, and the figures in ``drift``.

    Raises
    ------
    InputError
        ``incremental.mode`` is `predict`, and a kept state cannot serve the new rows.

    """
    decision = _take_decision(plan, probe)
    drifted = decision["outcome"] == "predict" and any(figure["over"] for figure in decision["drift"])
    _log.log(logging.WARNING if drifted else logging.INFO, "incremental: %s", describe(decision))
    base = plan.increment.base if plan.increment else None
    write_json(decision_file(plan), decision | {BASE: base}, root=plan.output)
    return decision


def _take_decision(plan: Plan, probe: DecisionProbe) -> dict[str, Any]:
    mode = plan.recipe.incremental.mode
    needed = _needed(plan)
    try:
        probe.place_new_rows(plan, [planned for planned in plan.operators if planned.name in needed])
    except CannotPredictError as error:
        if mode == "predict":
            raise InputError(
                f"incremental.mode is predict, but {error}. Set it to auto, or incremental.base to null for "
                "one run, so that everything is learnt again."
            ) from None
        return {"outcome": "full", "why": str(error), "drift": []}
    if mode == "refit":
        return {"outcome": "refit", "why": "incremental.mode is refit", "drift": []}
    figures = probe.measure_drift(plan)
    over = [figure["name"] for figure in figures if figure["over"]]
    outcome: Outcome = "refit" if mode == "auto" and over else "predict"
    why = f"drift of {', '.join(over)}" if over else "no significant drift beyond the thresholds"
    return {"outcome": outcome, "why": why, "drift": figures}


def _needed(plan: Plan) -> set[str]:
    """Return the kept operators whose columns drift is measured on, with all operators that they read from.

    `ingest` is among them in every mode, since it checks whether the labels of the new rows are known, and
    so is `parts`, which says which of the new rows may be learnt from.
    """
    kept = {planned.name: planned.operator for planned in plan.operators if planned.kept}
    adder = {field.name: name for name, operator in kept.items() for field in operator.adds}
    predicts = plan.recipe.incremental.mode != "refit"
    waiting = [adder[name] for name in COMPARED if name in adder and predicts]
    waiting += [name for name in ("ingest", PARTS) if name in kept]
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [adder[column] for column in kept[name].requires] + list(kept[name].uses)
    return needed


FOLDER = "increments"
BASE = "base"
"""Key of a kept decision: the version that the increment continues from."""


def decision_file(plan: Plan) -> Place:
    """Return the path of the decision that belongs to an undecided plan."""
    rule = plan.recipe.incremental.model_dump(mode="json", exclude={"base"})
    return plan.output / "runs" / FOLDER / f"{digest([plan.fingerprint, rule])}.json"


def remove_decisions(output: Place, removed: Collection[str]) -> None:
    """Remove the decisions of increments that continue from removed versions: nobody can plan them again."""
    kept: list[Place] = list((output / "runs" / FOLDER).glob("*.json"))
    for path in kept:
        try:
            found = read_json(path)
        except (OSError, ValueError):
            continue
        if isinstance(found, dict) and found.get(BASE) in removed:
            remove_file(path, root=output)


def read_decision(plan: Plan) -> dict[str, Any] | None:
    """Return the decision of an earlier run with the same base, input and rule; None if there is none.

    A damaged file counts as none: the decision is taken again from the same rows.
    """
    try:
        found: dict[str, Any] = read_json(decision_file(plan))
        _StoredDecision.model_validate(found)
    except (OSError, ValueError):
        return None
    return {key: value for key, value in found.items() if key != BASE}


def describe(decision: Mapping[str, Any]) -> str:
    """Describe a decision, or the section ``incremental`` of a manifest, in one line."""
    figures = "; ".join(
        f"{f['name']} {f['excess']:.3f} (threshold {f['threshold']:g}{_chance(f)})"
        for f in decision.get("drift", ())
    )
    why = decision.get("why", "there are no new rows")
    return f"{decision['outcome']}, {why}" + (f": {figures}" if figures else "")


def _chance(figure: Mapping[str, Any]) -> str:
    """Return the p-value of a figure and the columns that moved, as far as it has them.

    A figure beyond its threshold that may be chance is said to be so.
    """
    text = ""
    if {"p", "level"} <= figure.keys():
        chance = not figure["over"] and figure["excess"] > figure["threshold"]
        limit = "which is above its limit" if chance else "limit"
        text = f", p {figure['p']:.3g}, {limit} {figure['level']:.3g}"
    text += ", over" if figure["over"] else ""
    return text + (f", {', '.join(figure['columns'])}" if figure.get("columns") else "")


def describe_base(record: Mapping[str, Any]) -> str:
    """Describe in one line which base version a manifest's ``incremental`` names and what is kept of it."""
    shards = record["shards"]
    text = f"after {record['base']}: {count(shards['old'], 'shard')} unchanged, "
    text += f"{shards['new']:,} new, {shards['gone']:,} gone"
    names: dict[str, list[str]] = {}
    for name, reason in record["fitted"].items():
        names.setdefault(reason, []).append(name)
    fitted = [f"{', '.join(of)} ({reason})" for reason, of in names.items()]
    return text + f"; fitted again: {'; '.join(fitted) or 'nothing'}"
