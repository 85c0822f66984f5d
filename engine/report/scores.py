"""Scores against the truth that the recipe names. No operator has seen these columns."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from engine.report.sampling import NOISE
from engine.report.statistics import Stat, adjusted_rand_index
from engine.report.survey import Key, Survey

MOST_NAMES = 40


@dataclass(frozen=True)
class Flagging:
    """How well a set of flagged rows meets the true outliers."""

    name: str
    flagged: int
    hits: int
    outliers: int
    rows: int

    @property
    def flagged_share(self) -> float:
        """Share of all rows that are flagged: the recall of as many rows drawn at random."""
        return self.flagged / self.rows if self.rows else math.nan

    @property
    def precision(self) -> float:
        """Share of flagged rows that are outliers; nan where none is flagged."""
        return self.hits / self.flagged if self.flagged else math.nan

    @property
    def recall(self) -> float:
        """Share of outliers that are flagged; nan where there is none."""
        return self.hits / self.outliers if self.outliers else math.nan


@dataclass(frozen=True)
class Scores:
    """What the truth says. Fields stay empty where the recipe names no such column."""

    ari: float = math.nan
    """Of the inferred groups; noise counts as one group."""
    floor: float = math.nan
    """Of the class label alone."""
    true_groups: list[tuple[str, Stat]] = field(default_factory=list)
    columns: list[int] = field(default_factory=list)
    table: list[tuple[str, list[int]]] = field(default_factory=list)
    """True group, then its rows in each inferred group of ``columns``."""
    flaggings: list[Flagging] = field(default_factory=list)
    base_rate: float = math.nan
    note: str = ""


def score(found: Survey, group: str | None, outlier: str | None) -> Scores:
    """Compare with the truth columns of these names."""
    scores = Scores()
    if group is not None:
        scores = group_scores(found)
    if outlier is not None:
        flaggings, base_rate = outlier_scores(found)
        note = f"truth.outlier: the values of the column {outlier!r} cannot be read as true or false, so "
        note += "outliers are not scored. Use true/false or 1/0."
        scores = replace(scores, flaggings=flaggings, base_rate=base_rate, note="" if flaggings else note)
    return scores


def group_scores(found: Survey) -> Scores:
    """ARI of the inferred groups and of the label, and each true group's accuracy and whereabouts."""
    inferred = {k: s.rows for k, s in found.total(lambda key: (key.true_group, key.group)).items()}
    labels = {k: s.rows for k, s in found.total(lambda key: (key.true_group, key.y)).items()}
    stats = {str(name): stat for name, stat in found.total(lambda key: key.true_group).items()}
    names = sorted(stats, key=lambda name: -stats[name].rows)[:MOST_NAMES]
    sizes = found.total(lambda key: key.group)
    largest = sorted(sizes, key=lambda g: -sizes[g].rows)[:MOST_NAMES]
    columns = sorted((int(g) for g in largest if g is not None), key=lambda g: (g == NOISE, g))
    by_name = {(str(name), g): rows for (name, g), rows in inferred.items()}
    return Scores(
        ari=adjusted_rand_index(inferred),
        floor=adjusted_rand_index(labels),
        true_groups=[(name, stats[name]) for name in names],
        columns=columns,
        table=[(name, [by_name.get((name, g), 0) for g in columns]) for name in names],
    )


def outlier_scores(found: Survey) -> tuple[list[Flagging], float]:
    """Marked rows, and noise, against the true outliers; and the share of true outliers (the floor)."""
    known = {key: stat.rows for key, stat in found.cells.items() if key.true_outlier is not None}
    if not known:
        return [], math.nan
    outliers = sum(rows for key, rows in known.items() if key.true_outlier)

    def flagging(name: str, flagged: dict[Key, int]) -> Flagging:
        hits = sum(rows for key, rows in flagged.items() if key.true_outlier)
        return Flagging(name, sum(flagged.values()), hits, outliers, sum(known.values()))

    marked = {key: rows for key, rows in known.items() if key.is_outlier}
    noise = {key: rows for key, rows in known.items() if key.group == NOISE}
    found_by = [flagging("marked is_outlier", marked), flagging("noise (group -1)", noise)]
    return found_by, outliers / sum(known.values())
