"""The trade-off over the strength of weighting: a record for files, a picture and a table for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from operators.metrics.group_scores import pooled_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from operators.cues.strength import Point
    from operators.metrics.group_scores import ComparedGroup

"""Members of a pool that its name lists."""
COLUMNS = ("strength", "mean", "worst", "95 % interval", "rows", "effective", "worst of all")
EXPLANATION = (
    "Strength 0 weighs all rows alike, 1 balances the classes, 2 gives the robust weights in full. Each "
    "point is a linear model, scored on rows that it has not seen: mean accuracy, accuracy of the worst "
    "group or class, its rows, and the share of rows that the weighted ones are worth. The interval holds "
    "the lowest true accuracy of any compared group with 95 % confidence; groups with fewer than 50 rows "
    "are pooled."
)
RULE = (
    "To train at another strength, put `train: {params: {max_mean_loss: 0.02}}` into the recipe, or give "
    "`--set max_mean_loss=0.02` to `rowsieve retrain`: it takes the largest strength whose mean accuracy is "
    "at most so far below the best."
)


def curve_record(
    points: Sequence[Point],
    compared: Sequence[ComparedGroup],
    name: Callable[[int], str],
    *,
    grouping: str,
    rows: int,
) -> dict[str, Any]:
    """Return the curve as JSON-able values.

    Parameters
    ----------
    points, compared
        From ``strength.trade_off`` and ``strength.compared_groups``.
    name
        Name of a group by its number.
    grouping
        What the groups are: "classes", "shortcut" (each class by whether a row breaks it) or "groups".
    rows
        Rows of the sample.

    """
    pooled = [name(member) for group in compared if group.pooled for member in group.members]
    return {
        "grouping": grouping,
        "rows": rows,
        "pooled": pooled,
        "points": [
            {
                "strength": point.strength,
                "mean_accuracy": point.mean,
                "mean_low": point.mean_low,
                "mean_high": point.mean_high,
                "worst_accuracy": point.worst,
                "worst_low": point.worst_low,
                "worst_high": point.worst_high,
                "worst_group": pooled_name([name(member) for member in point.group]),
                "worst_rows": point.rows,
                "effective_share": point.effective_share,
            }
            for point in points
        ],
    }


def worst_word(record: Mapping[str, Any]) -> str:
    """Return what the worst is looked for among: "class" or "group"."""
    return "class" if record["grouping"] == "classes" else "group"


def table_rows(record: Mapping[str, Any], chosen: float | None = None) -> list[tuple[str, ...]]:
    """Return the rows of the table under ``COLUMNS``; the chosen strength is marked."""
    return [
        (
            f"{point['strength']:g}" + (" (chosen)" if point["strength"] == chosen else ""),
            f"{point['mean_accuracy']:.3f}",
            f"{point['worst_accuracy']:.3f}",
            f"{point['worst_low']:.3f}-{point['worst_high']:.3f}",
            f"{point['worst_rows']:,}",
            f"{point['effective_share']:.0%}",
            str(point["worst_group"]),
        )
        for point in record["points"]
    ]


def summary_sentence(record: Mapping[str, Any]) -> str:
    """Say in two sentences where the curve begins and how far it goes."""
    points, word = record["points"], worst_word(record)
    first = points[0]
    best = max(points, key=lambda point: point["worst_accuracy"])
    text = (
        f"Without weights the worst {word} has an accuracy of {first['worst_accuracy']:.3f} and all rows one "
        f"of {first['mean_accuracy']:.3f}. "
    )
    if best is first:
        return text + f"No strength of weighting raises the worst {word}."
    return text + (
        f"The worst {word} is best at strength {best['strength']:g}, {best['worst_accuracy']:.3f}, with a "
        f"mean accuracy of {best['mean_accuracy']:.3f}."
    )


def draw(record: Mapping[str, Any], chosen: float | None = None) -> Figure:
    """Draw mean and worst accuracy over the strength, and the worst over the mean."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.5, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    _over_strength(left, record)
    _over_mean(right, record, chosen)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def _over_strength(axes: Axes, record: Mapping[str, Any]) -> None:
    points = record["points"]
    x = [point["strength"] for point in points]
    for key, label, color in (("mean", "mean", "C0"), ("worst", f"worst {worst_word(record)}", "C1")):
        axes.plot(x, [point[f"{key}_accuracy"] for point in points], marker="o", label=label, color=color)
        low, high = ([point[f"{key}_{end}"] for point in points] for end in ("low", "high"))
        axes.fill_between(x, low, high, color=color, alpha=0.15, lw=0)
    axes.set(xlabel="strength (0: none, 1: classes, 2: robust)", ylabel="accuracy on held-out rows")
    axes.legend(frameon=False, fontsize=8)


def _over_mean(axes: Axes, record: Mapping[str, Any], chosen: float | None) -> None:
    points = record["points"]
    x, y = ([point[f"{key}_accuracy"] for point in points] for key in ("mean", "worst"))
    axes.plot(x, y, marker="o", color="C1")
    for point in points:
        if point["strength"] in (0.0, 1.0, 2.0):
            place = (point["mean_accuracy"], point["worst_accuracy"])
            axes.annotate(
                f"{point['strength']:g}", place, xytext=(4, 4), textcoords="offset points", fontsize=8
            )
        if point["strength"] == chosen:
            place = ([point["mean_accuracy"]], [point["worst_accuracy"]])
            axes.plot(*place, marker="o", ms=12, mfc="none", color="black", ls="none", label="chosen")
            axes.legend(frameon=False, fontsize=8)
    axes.set(xlabel="mean accuracy", ylabel=f"accuracy of the worst {worst_word(record)}")
