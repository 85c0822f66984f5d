"""The decision of an incremental run: made once, after the new rows were placed, and kept as a file."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from engine.core.errors import InputError
from engine.core.json_files import write_json
from engine.plan.decisions import decision_file, describe
from engine.plan.increment import Outcome
from engine.runs.drift import measure
from operators.base import FEATURES, GRADIENT, GROUP, CannotPredictError

if TYPE_CHECKING:
    from engine.plan.model import Plan
    from engine.runs.runner import Session

SHARDS = {"old": "shards taken over", "new": "new", "gone": "gone"}
_log = logging.getLogger("rowsieve")


def settle(session: Session) -> Plan:
    """The session's plan with its outcome decided: places the new rows and measures their drift.

    Raises InputError where the mode is `predict` and the new rows cannot be placed.
    """
    # Not at the top: planning reads decisions.
    from engine.plan.versioning import decided

    plan = session.plan
    if plan.increment is None or not plan.increment.undecided:
        return plan
    decision = _decide(plan, session)
    drifted = decision["outcome"] == "predict" and any(figure["over"] for figure in decision["drift"])
    _log.log(logging.WARNING if drifted else logging.INFO, "incremental: %s", describe(decision))
    write_json(decision_file(plan), decision)
    return decided(plan, decision)


def _decide(plan: Plan, session: Session) -> dict[str, Any]:
    mode, found = plan.recipe.incremental.mode, plan.increment
    outcome: Outcome = "refit" if mode == "refit" else "predict"
    try:
        for planned in plan.operators:
            if planned.name in _needed(plan):
                session.operator(planned)
    except CannotPredictError as error:
        if mode == "predict":
            raise InputError(
                f"incremental.mode is predict, but {error}. Set it to auto, or incremental.base to null for "
                "one run, so that everything is learnt again."
            ) from None
        return {"outcome": "full", "why": str(error), "drift": []}
    if outcome == "refit" or found is None:
        return {"outcome": outcome, "why": "incremental.mode is refit", "drift": []}
    figures = measure(plan, session.executor)
    over = [figure["name"] for figure in figures if figure["over"]]
    if mode == "auto" and over:
        outcome = "refit"
    why = f"drift of {', '.join(over)}" if over else "no drift beyond the thresholds"
    return {"outcome": outcome, "why": why, "drift": figures}


def _needed(plan: Plan) -> set[str]:
    """Kept operators that place new rows where drift is looked at, with all that they read from.

    `ingest` is among them in every mode: it sees whether the labels are known.
    """
    kept = {planned.name: planned.operator for planned in plan.operators if planned.kept}
    adder = {field.name: name for name, operator in kept.items() for field in operator.adds}
    predicts = plan.recipe.incremental.mode != "refit"
    waiting = [adder[name] for name in (FEATURES, GRADIENT, GROUP) if name in adder and predicts]
    waiting += [name for name in ("ingest",) if name in kept]
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += [adder[column] for column in kept[name].requires] + list(kept[name].uses)
    return needed
