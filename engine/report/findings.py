"""What was found, in plain words."""

from __future__ import annotations

from dataclasses import dataclass

from engine.report.groups import GroupRow
from engine.report.words import count, percent


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
    if worst is None:
        return []
    size = f"class {worst.class_name}, {count(worst.stat.rows, 'row')}, {percent(worst.share)}"
    against = f"{percent(worst.stat.accuracy)} right against {percent(found.accuracy)} overall"
    if not worst.clearly_worse:
        return [f"No group stands out: the probe's lowest accuracy is on {worst.label} ({size}), {against}."]
    smallest = len(found.groups) > 1 and min(found.groups, key=lambda g: g.stat.rows) is worst
    start = (
        f"The smallest, {worst.label} ({size}), is where the probe is worst"
        if smallest
        else f"The probe is worst on {worst.label} ({size})"
    )
    advice = " A model trained on all rows alike serves these rows badly." if split else ""
    return [f"{start}: {against}.{advice}"]


def noise_sentences(found: Findings) -> list[str]:
    """How many rows fit no group or are marked, and what that does not mean."""
    texts = [noise_and_marked(found.noise, found.outliers, found.rows)]
    sizes = found.class_rows
    mostly = [g for g in found.noise_rows if 2 * g.stat.rows > sizes[g.y]]
    if mostly:
        names = ", ".join(f"{g.class_name} ({g.stat.rows:,} of {sizes[g.y]:,} rows)" for g in mostly[:5])
        texts.append(f"Most of class {names} is noise: its groups say little.")
    low = sorted((g for g in found.noise_rows if g.clearly_worse), key=lambda g: g.stat.accuracy)
    if low:
        names = ", ".join(f"{g.class_name} ({percent(g.stat.accuracy)} right)" for g in low[:5])
        texts.append(
            f"The probe does badly on the noise of class {names}. Noise need not be corrupt: the minority "
            f"may be in it, so look before dropping it."
        )
    return texts


def noise_and_marked(noise: int, marked: int, rows: int) -> str:
    """Both counts, in one sentence where they are the same."""
    share = f"{count(noise, 'row')} ({percent(noise / max(rows, 1))})"
    fit = "fits" if noise == 1 else "fit"
    if noise == 0:
        first = "Every row fits a group: there is no noise."
    elif noise == marked:
        are = "is marked as an outlier" if noise == 1 else "are marked as outliers"
        return f"{share} {fit} no group (noise, group -1) and {are}."
    else:
        first = f"{share} {fit} no group (noise, group -1)."
    if marked == 0:
        return f"{first} No row is marked as an outlier."
    are = "is marked as an outlier" if marked == 1 else "are marked as outliers"
    return f"{first} {count(marked, 'row')} ({percent(marked / max(rows, 1))}) {are}."
