"""Weight of each class under class balance, with its name, for the warning, the report and the metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from operators.bounded_json import read_json
from operators.counts import count

RECORD = "classes.json"


@dataclass(frozen=True)
class ClassTotal:
    """One class under class balance, ahead of all factors.

    Attributes
    ----------
    name : value of the label column.
    rows : kept rows that are learnt from.
    weight : weight of each row; the mean over all kept rows is 1.
    all_rows : all rows of the class that operators learn from, dropped ones and outliers included, validation
        and test rows not; 0 where nobody counted them.
    """

    name: str
    rows: int
    weight: float
    all_rows: int = 0

    @property
    def rows_text(self) -> str:
        """The number of training rows in words, with that of rows that are learnt from if they differ."""
        of = f" (of {self.all_rows:,} that operators learn from)" if self.all_rows > self.rows else ""
        return f"{count(self.rows, 'training row')}{of}"


def class_totals(
    balance: Mapping[int, float], rows: Mapping[int, int], names: Sequence[str], counts: Sequence[int]
) -> list[ClassTotal]:
    """Return the totals of all classes that have rows, in the order of their index.

    Parameters
    ----------
    balance : weight of each row of a class.
    rows : rows of each class that are kept and learnt from.
    names, counts : the classes of the source, and their rows that operators learn from.
    """
    return [ClassTotal(names[c], rows[c], balance[c], counts[c]) for c in sorted(balance)]


def save_totals(totals: Sequence[ClassTotal], strength: float, state: Path) -> None:
    """Write ``classes.json`` into the state folder."""
    record = {"strength": strength, "classes": [asdict(total) for total in totals]}
    (state / RECORD).write_text(json.dumps(record, ensure_ascii=False), "utf-8")


def load_totals(state: Path) -> tuple[list[ClassTotal], float]:
    """Return what ``save_totals`` wrote; no class and 1 where classes are not balanced."""
    path = state / RECORD
    if not path.exists():
        return [], 1.0
    record = read_json(path)
    return [ClassTotal(**total) for total in record["classes"]], record["strength"]


def effective_rows(totals: Sequence[ClassTotal]) -> float:
    """Return Kish's effective sample size of class balance alone."""
    squares = sum(total.rows * total.weight**2 for total in totals)
    return sum(total.rows * total.weight for total in totals) ** 2 / squares if squares else 0.0


def rare_class_sentence(totals: Sequence[ClassTotal], min_class_rows: int, strength: float = 1.0) -> str:
    """Return a sentence on the classes with too few rows for a full share of the weight, or an empty text.

    ``strength`` is that of the balance, from 0 to 1. At 0 no class has a smaller share for its few rows.
    """
    n_rows = sum(total.rows for total in totals)
    full = max((total.rows * total.weight for total in totals), default=0.0)
    rare = [t for t in totals if t.rows < min_class_rows and t.rows * t.weight < 0.999 * full]
    if not rare or strength <= 0:
        return ""
    parts = [
        f"{t.name!r} has {t.rows_text}, each of which weighs "
        f"{t.weight:.3g} times the mean row and all of them {t.rows * t.weight / n_rows:.1%} of the total"
        for t in rare[:5]
    ]
    more = f"; so do {len(rare) - 5} more" if len(rare) > 5 else ""
    share = f"{full / n_rows:.1%} of the total"
    others = f"have {share} each" if strength >= 1 else f"have up to {share}"
    return (
        f"Classes with fewer than {min_class_rows} training rows are too small to be estimated. Ahead of the "
        f"factors they weigh less than the others, which {others}: {'; '.join(parts)}{more}."
    )


def strength_sentence(strength: float, *, is_given: bool) -> str:
    """Return a sentence that the classes are not fully balanced and why, or an empty text if they are.

    ``is_given``: the recipe sets the strength; else ``cues`` has measured it.
    """
    if strength >= 1:
        return ""
    given = f"as operators.weights.class_strength: {strength:g} says"
    if strength <= 0:
        measured = "as the worst class is no better on held-out rows if they are"
        return f"Classes are not balanced, {given if is_given else measured}."
    measured = "which serves the worst class best on held-out rows"
    return (
        f"Classes are balanced in part: a class of n rows has a total in proportion to n^{1 - strength:g}, "
        f"{given if is_given else measured}."
    )
