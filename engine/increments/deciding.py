"""The decision of an incremental run: made once, after the new rows were placed, and kept as a file."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engine.errors import InputError
from engine.fingerprint import digest
from engine.increments.drift import measure
from engine.increments.planning import Outcome
from engine.store import write_json
from operators.base import FEATURES, GRADIENT, GROUP, CannotPredictError

if TYPE_CHECKING:
    from connectors.storage import Place
    from engine.plan import Plan
    from engine.runner import Session

SHARDS = {"old": "shards taken over", "new": "new", "gone": "gone"}
_log = logging.getLogger("winnow")


def decision_file(plan: Plan) -> Place:
    """Where the decision lies that belongs to a plan before it is decided."""
    rule = plan.recipe.incremental.model_dump(mode="json", exclude={"base"})
    return plan.output / "runs" / "increments" / f"{digest([plan.fingerprint, rule])}.json"


def read_decision(plan: Plan) -> dict[str, Any] | None:
    """What was decided before for the same base, input and rule."""
    try:
        found: dict[str, Any] = json.loads(decision_file(plan).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return found


def settle(session: Session) -> Plan:
    """The session's plan with its outcome decided: places the new rows and measures their drift.

    Raises InputError where the mode is `predict` and the new rows cannot be placed.
    """
    # Not at the top: planning reads decisions.
    from engine.freezing import decided

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


def describe(decision: Mapping[str, Any]) -> str:
    """A line for people; of a decision, or of a manifest's ``incremental``."""
    figures = "; ".join(
        f"{f['name']} {f['excess']:.3f} (threshold {f['threshold']:g}{', over' if f['over'] else ''})"
        for f in decision.get("drift", ())
    )
    why = decision.get("why", "there are no new rows")
    return f"{decision['outcome']}, {why}" + (f": {figures}" if figures else "")


def describe_base(record: Mapping[str, Any]) -> str:
    """What a manifest's ``incremental`` goes on from, and what of it is kept."""
    counts = ", ".join(f"{record['shards'][key]} {said}" for key, said in SHARDS.items())
    text = f"after {record['base']}: {counts}"
    fitted = [f"{name} ({reason})" for name, reason in record["fitted"].items()]
    return text + f"; fitted again: {', '.join(fitted) or 'nothing'}"
