"""Stored decisions of incremental runs: one file for each base version, input and rule."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from connectors.storage import Place
from engine.core.digests import digest
from engine.plan.model import Plan

SHARDS = {"old": "shards taken over", "new": "new", "gone": "gone"}


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
