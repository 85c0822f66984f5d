"""Numbers as text, and what was found in plain words."""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.report.groups import GroupRow

NBSP = "\u00a0"
DASH = "–"


def number(value: float, digits: int = 3) -> str:
    """Thousands separators for whole numbers, ``digits`` decimals otherwise; a dash for nan."""
    if isinstance(value, float) and not math.isfinite(value):
        return DASH
    if float(value).is_integer():
        return f"{int(value):,}"
    if 0 < abs(value) < 10**-digits:
        return f"{value:.1e}"
    return f"{value:,.{digits}f}"


def percent(share: float) -> str:
    """A share in percent: one decimal, none where it is a whole number; never rounded to 0 or 100."""
    if math.isnan(share):
        return DASH
    value = 100 * share
    if 0 < value < 0.1:
        return f"<{NBSP}0.1{NBSP}%"
    if 99.9 < value < 100:
        return f">{NBSP}99.9{NBSP}%"
    return f"{value:.1f}".removesuffix(".0") + f"{NBSP}%"


def interval(ends: tuple[float, float]) -> str:
    """Two shares in percent: ``89.6 – 92.3 %``."""
    if math.isnan(ends[0]):
        return DASH
    return f"{100 * ends[0]:.1f} – {100 * ends[1]:.1f}{NBSP}%"


def count(rows: int, what: str) -> str:
    """``1 row``, ``1,797 rows``."""
    plural = what if rows == 1 else ("classes" if what == "class" else what + "s")
    return f"{rows:,} {plural}"


def short(value: object, length: int = 80) -> str:
    """Text of one value, cut to ``length``; a list of numbers as ``[64 numbers]``."""
    if isinstance(value, list | tuple):
        kind = "number" if all(isinstance(v, int | float) for v in value) else "value"
        return f"[{count(len(value), kind)}]"
    if value is None:
        return DASH
    if isinstance(value, bytes):
        return f"[{count(len(value), 'byte')}]"
    text = number(value) if isinstance(value, float) else str(value)
    return text if len(text) <= length else text[: length - 1] + "…"


@dataclass(frozen=True)
class Findings:
    """The few numbers that the first paragraph is made of."""

    rows: int
    n_classes: int
    quarantined: int
    noise: int
    outliers: int
    groups: tuple[GroupRow, ...]
    """Inferred groups, noise left out."""
    noise_rows: tuple[GroupRow, ...]
    worst: GroupRow | None
    class_rows: dict[int, int]
    accuracy: float
    """Of the probe over all rows."""


def sentences(found: Findings) -> list[str]:
    """What was found, one sentence or two an item."""
    split = len(found.groups) > found.n_classes
    texts = [
        f"{count(found.rows, 'row')} in {count(found.n_classes, 'class')}; "
        f"{count(len(found.groups), 'group')} {'was' if len(found.groups) == 1 else 'were'} inferred."
    ]
    if not split:
        texts.append(
            "No more groups than classes were found: the probe treats the rows of a class alike, or it does "
            "not lean on a shortcut strongly enough to show one."
        )
    texts += worst_sentences(found, split)
    texts += noise_sentences(found)
    if found.quarantined:
        texts.append(
            f"{count(found.quarantined, 'row')} could not be used: quarantined, published with split dropped "
            f"and left out of every number below."
        )
    return texts


def worst_sentences(found: Findings, split: bool) -> list[str]:
    """Where the probe is worst, and whether that is more than chance."""
    worst = found.worst
    if worst is None or math.isnan(worst.stat.accuracy):
        return []
    smallest = min(found.groups, key=lambda g: g.stat.rows) is worst and len(found.groups) > 1
    place = (
        f"{worst.label} (class {worst.class_name}, {count(worst.stat.rows, 'row')}, {percent(worst.share)})"
    )
    against = f"{percent(worst.stat.accuracy)} right against {percent(found.accuracy)} overall"
    start = (
        f"The smallest, {place}, is where the probe is worst"
        if smallest
        else f"The probe is worst on {place}"
    )
    if not worst.clearly_worse:
        return [f"{start}: {against}, which is within what chance allows."]
    advice = " A model trained on all rows alike serves these rows badly." if split else ""
    return [f"{start}: {against}.{advice}"]


def noise_sentences(found: Findings) -> list[str]:
    """How many rows fit no group or are marked, and what that does not mean."""
    noise, marked = found.noise, found.outliers
    of_all = f"{count(noise, 'row')} ({percent(noise / max(found.rows, 1))})"
    texts = []
    if noise:
        fit = "fits" if noise == 1 else "fit"
        texts.append(f"{of_all} {fit} no group (noise, group -1).")
    else:
        texts.append("Every row fits a group: there is no noise.")
    sizes = found.class_rows
    mostly = [g for g in found.noise_rows if 2 * g.stat.rows > sizes[g.y]]
    if mostly:
        names = ", ".join(f"{g.class_name} ({g.stat.rows:,} of {sizes[g.y]:,} rows)" for g in mostly[:5])
        texts.append(f"Most of class {names} is noise: its groups say little.")
    if marked:
        texts.append(
            f"{count(marked, 'row')} ({percent(marked / max(found.rows, 1))}) "
            f"{'is' if marked == 1 else 'are'} marked as outliers."
        )
    else:
        texts.append("No row is marked as an outlier.")
    low = [g for g in found.noise_rows if g.clearly_worse]
    if low:
        names = ", ".join(f"{g.class_name} ({percent(g.stat.accuracy)} right)" for g in low[:5])
        texts.append(
            f"The probe is also poor on the noise of class {names}: noise need not be corrupt, it may hold "
            f"more of the minority. Look before dropping it."
        )
    return texts
