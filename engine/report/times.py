"""Where the time went: what each operator's committed work took, and what it wrote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from engine.plan.model import Plan
from engine.report.pictures import COLOURS, Margins, inch_panels, plain, png
from engine.report.words import percent

MARGINS = Margins(left=1.3, right=0.3, bottom=0.6, top=0.35)
ROW_INCHES = 0.3


@dataclass(frozen=True)
class Spent:
    """One operator. ``fit`` is in seconds of the clock, ``apply`` in seconds of all its workers together."""

    name: str
    fit: float
    apply: float
    rows: int
    bytes: int

    @property
    def seconds(self) -> float:
        """Both together."""
        return self.fit + self.apply

    @property
    def per_million(self) -> float:
        """Seconds per million rows."""
        return 1e6 * self.seconds / self.rows if self.rows else 0.0


def spent(plan: Plan) -> list[Spent]:
    """Every operator in the order of the chain, from its records in the run store."""
    found = []
    for planned in plan.operators:
        fit = float((plan.store.fitted(planned.fingerprint) or {}).get("seconds", 0.0))
        parts = plan.store.committed(planned.fingerprint).values()
        worked, rows, size = (
            sum(getattr(part, key) for part in parts) for key in ("seconds", "rows", "bytes")
        )
        found.append(Spent(planned.name, fit, worked, rows, size))
    return found


def where_time_went(plan: Plan) -> dict[str, Any]:
    """Rows of the table, its sum, a sentence and the picture."""
    rows = spent(plan)
    total = sum(row.seconds for row in rows)
    most = max(rows, key=lambda row: row.seconds)
    share = percent(most.seconds / total) if total else percent(0.0)
    return {
        "rows": rows,
        "total": total,
        "bytes": sum(row.bytes for row in rows),
        "sentence": f"{share} of it went into {most.name}.",
        "picture": bars(rows),
    }


def bars(rows: list[Spent]) -> str:
    """A bar for each operator: fit, then apply."""
    height = ROW_INCHES * len(rows) + MARGINS.bottom + MARGINS.top
    figure = Figure(figsize=(8.0, height))
    (axes,) = inch_panels(figure, 1, 1, MARGINS)[0]
    names = [row.name for row in rows]
    fits = [row.fit for row in rows]
    axes.barh(names, fits, color=COLOURS[0], label="fit (clock)", height=0.7)
    axes.barh(
        names,
        [row.apply for row in rows],
        left=fits,
        color=COLOURS[1],
        label="apply (all workers)",
        height=0.7,
    )
    axes.invert_yaxis()
    axes.set_xlabel("seconds")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    axes.spines[["top", "right"]].set_visible(False)
    for label in axes.get_yticklabels():
        plain(label)
    return png(figure)
