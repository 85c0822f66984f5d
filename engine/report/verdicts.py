"""Where several operators mark outliers: who marks what, and the rows on which they differ."""

from __future__ import annotations

from dataclasses import dataclass

from engine.plan.model import Plan
from engine.report.sampling import judges
from engine.report.statistics import Stat
from engine.report.survey import Survey
from engine.report.words import count

BETWEEN = "+"


@dataclass(frozen=True)
class Marked:
    """The rows that the same judges mark."""

    by: str
    """Their reasons, or "nobody"."""
    stat: Stat
    outliers: int
    """Rows that are judged outliers in the end."""
    true_share: float | None
    """Share of true outliers, where the recipe names them."""


@dataclass(frozen=True)
class Verdicts:
    """The section; ``rows`` is empty where one judge decides."""

    rule: str
    contested: int
    rows: list[Marked]


def verdicts(plan: Plan, found: Survey) -> Verdicts:
    """Counts for every set of judges that mark the same rows, the most marks first."""
    names = judges(plan)
    if len(names) < 2:
        return Verdicts("", 0, [])
    rule = next(p.params["rule"] for p in plan.operators if getattr(p.operator, "judges", ()))
    stats = found.total(lambda key: key.marked_by or "")
    outliers = found.total(lambda key: (key.marked_by or "", bool(key.is_outlier)))
    true = found.total(lambda key: (key.marked_by or "", bool(key.true_outlier)))
    known = plan.recipe.truth.outlier is not None
    rows = [
        Marked(
            by=text.replace(BETWEEN, " and ") or "nobody",
            stat=stat,
            outliers=outliers.get((text, True), Stat()).rows,
            true_share=true.get((text, True), Stat()).rows / stat.rows if known else None,
        )
        for text, stat in sorted(stats.items(), key=lambda item: (-_votes(item[0]), item[0]))
    ]
    differ = sum(stat.rows for text, stat in stats.items() if 0 < _votes(text) < len(names))
    return Verdicts(rule, differ, rows)


def sentence(found: Verdicts) -> str:
    """For the summary; empty where one judge decides."""
    if not found.rows:
        return ""
    marked = sum(row.outliers for row in found.rows)
    rule = {"all": "all judges must agree", "any": "one judge is enough"}.get(
        found.rule, f"{found.rule} decides"
    )
    return (
        f"The judges of outliers differ on {count(found.contested, 'row')}; by the recipe's rule ({rule}) "
        f"{count(marked, 'row')} {'is' if marked == 1 else 'are'} marked."
    )


def _votes(text: str) -> int:
    return len(text.split(BETWEEN)) if text else 0
