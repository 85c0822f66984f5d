"""Time that each operator took, and bytes that it wrote, from the records of its committed work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.plan.model import Plan
from operators.report.text import percent


@dataclass(frozen=True)
class OperatorTime:
    """Cost of one operator: ``fit`` in seconds of wall-clock time, ``apply`` summed over all workers."""

    name: str
    fit: float
    apply: float
    rows: int
    bytes: int

    @property
    def seconds(self) -> float:
        """Sum of ``fit`` and ``apply``."""
        return self.fit + self.apply

    @property
    def per_million(self) -> float:
        """Seconds per million rows."""
        return 1e6 * self.seconds / self.rows if self.rows else 0.0


def operator_times(plan: Plan) -> list[OperatorTime]:
    """List the costs of the operators in the order of the recipe."""
    found = []
    for planned in plan.operators:
        fit = float((plan.store.fitted(planned.fingerprint) or {}).get("seconds", 0.0))
        parts = plan.store.committed(planned.fingerprint).values()
        worked, rows, size = (
            sum(getattr(part, key) for part in parts) for key in ("seconds", "rows", "bytes")
        )
        found.append(OperatorTime(planned.name, fit, worked, rows, size))
    return found


def time_section(plan: Plan) -> dict[str, Any]:
    """Return the rows of the table, their sums and a sentence, for the template."""
    rows = operator_times(plan)
    total = sum(row.seconds for row in rows)
    most = max(rows, key=lambda row: row.seconds)
    return {
        "rows": rows,
        "total": total,
        "longest": most.seconds,
        "bytes": sum(row.bytes for row in rows),
        "sentence": f"{most.name} took {percent(most.seconds / total if total else 0.0)} of it.",
    }
