"""The trade-off over the strength of weighting: a record for files, a picture and a table for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from operators.cues.params import NOTABLE_LOSS
from operators.metrics.group_scores import MIN_ROWS, few_rows_text, not_compared, pool_groups, pooled_name

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from operators.cues.models.trade_off import TradeOffPoint

MAX_TICKS = 5
"""Intervals of an axis whose numbers have several decimals, which collide otherwise."""
LABEL_WIDTH, LABEL_HEIGHT = 0.05, 0.06
"""Size of a label of one digit, by the width and the height of the axes."""
SAME = 1e-9
"""Difference of strengths that are the same."""
CLASS_BALANCE = 1.0
"""Strength of full class balance."""
BASELINES = {0.0: "no weights", CLASS_BALANCE: "class balance"}
"""Names of the strengths that may be the baseline."""
SUGGESTED_LOSS = 0.02
"""The ``max_mean_loss`` that sentences suggest."""
OVER_CLASSES = "rows that break"
"""Beginning of the names of groups that hold rows of several classes (``curve.measured_curve``)."""
COLUMNS = ("strength", "mean", "worst", "95 % interval", "rows", "effective", "worst of all")
EXPLANATION = (
    "Strength 0 weighs all rows alike, 1 balances the classes, 2 gives the robust weights in full. Each "
    "point is a linear model, scored on rows that it has not seen: mean accuracy, accuracy of the worst "
    "group or class, its rows, and the share of rows that the weighted ones are worth. The interval holds "
    "the lowest true accuracy of any compared group with 95 % confidence; groups with fewer than 50 rows "
    "are pooled, and left out where they have fewer than 50 together."
)
RULE = (
    f"To train at another strength, put `train: {{params: {{max_mean_loss: {SUGGESTED_LOSS}}}}}` into the "
    f"recipe, or give `--set max_mean_loss={SUGGESTED_LOSS}` to `rowsieve retrain`: it takes the largest "
    "strength whose mean accuracy is at most so far below the best, if the worst group is no worse there "
    "than without weights."
)


def curve_record(
    points: Sequence[TradeOffPoint],
    group_rows: Mapping[int, int],
    name: Callable[[int], str],
    *,
    grouping: str,
    rows: int,
    published: float | None = None,
) -> dict[str, Any]:
    """Return the curve as JSON-able values.

    Parameters
    ----------
    points
        From ``trade_off.trade_off``.
    group_rows
        Rows of each group, from ``trade_off.rows_by_group``.
    name
        Name of a group by its number.
    grouping
        What the groups are: "classes", "shortcut" (each class by whether a row breaks it) or "groups".
    rows
        Rows of the sample.
    published
        Strength of the published weights, if it is one of the points.

    """
    from operators.cues.models.curve_points import baseline

    pooled = [name(one) for members in pool_groups(group_rows) if len(members) > 1 for one in members]
    return {
        "grouping": grouping,
        "rows": rows,
        "group_rows": {name(group): n for group, n in group_rows.items()},
        "pooled": pooled,
        "left_out": [name(group) for group in not_compared(group_rows)],
        "baseline": _point_record(baseline(points), name) | {"name": BASELINES[baseline(points).strength]},
        "published_strength": published,
        "points": [_point_record(point, name) for point in points],
    }


def _point_record(point: TradeOffPoint, name: Callable[[int], str]) -> dict[str, Any]:
    return {
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


def published_point(record: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the point of the published weights; None where they are not on the curve."""
    strength = record.get("published_strength")
    if strength is None:
        return None
    near: Mapping[str, Any] = min(record["points"], key=lambda point: abs(point["strength"] - strength))
    return near if abs(near["strength"] - strength) < SAME else None


def baseline_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the point of the baseline with its name, also of a record that was written without one."""
    if "baseline" in record:
        found: Mapping[str, Any] = record["baseline"]
        return found
    ends = [point for point in record["points"] if point["strength"] in BASELINES]
    best = max(ends, key=lambda p: (p["worst_accuracy"], p["mean_accuracy"], p["strength"]))
    return {**best, "name": BASELINES[best["strength"]]}


def small_groups_sentence(record: Mapping[str, Any]) -> str:
    """Name the groups that are pooled or in no figure of the curve; empty where there are none."""
    names = record.get("group_rows", {})
    text = few_rows_text(names, word=group_word(record))
    few = f"{text[0].upper()}{text[1:]}." if text else ""
    over = next((name for name in names if name.startswith(OVER_CLASSES)), "")
    if over:
        few = (
            f"{over[0].upper()}{over[1:]} are one group over the classes that have fewer than {MIN_ROWS} of "
            f"them, each of which may have a far lower accuracy. {few}"
        )
    return few.strip()


def baseline_sentence(record: Mapping[str, Any]) -> str:
    """Say what the published weights win and cost against the baseline, in the figures of the curve."""
    word, base = group_word(record), baseline_of(record)
    text = (
        f"On held-out rows the better of no weights and class balance is {base['name']}: the worst {word} "
        f"({base['worst_group']}) has an accuracy of {base['worst_accuracy']:.3f}, all rows "
        f"{base['mean_accuracy']:.3f}."
    )
    point, small = published_point(record), small_groups_sentence(record)
    if point is None:
        return " ".join(filter(None, (text, small)))
    if abs(point["strength"] - base["strength"]) < SAME:
        text = f"{text} The published weights are these."
        return " ".join(filter(None, (text, small, price_sentence(record, "They"))))
    text = (
        f"{text} With the published weights (strength {point['strength']:.3g}) the worst {word} "
        f"({point['worst_group']}) has {point['worst_accuracy']:.3f}, all rows {point['mean_accuracy']:.3f}."
    )
    return " ".join(filter(None, (text, small, price_sentence(record))))


def price_sentence(record: Mapping[str, Any], subject: str = "The published weights") -> str:
    """Say what mean accuracy the published weights cost, what they win for it, and how to lose less.

    It is empty where they cost at most ``NOTABLE_LOSS``. Weights that are the baseline are compared with
    none.
    """
    from operators.cues.models.curve_points import last_within

    paid = _price(record)
    if paid is None or paid[0] <= NOTABLE_LOSS:
        return ""
    lost, won, base = paid
    word, points = group_word(record), record["points"]
    means, worst = ([point[key] for point in points] for key in ("mean_accuracy", "worst_accuracy"))
    less = points[last_within(means, worst, SUGGESTED_LOSS)]
    gain = f"{won:.3f}" if round(won, 3) > 0 else "nothing"
    verdict = ", less than they cost" if gain != "nothing" and won < lost else ""
    rows = " on rows like these, in most of which the shortcut holds," * (record["grouping"] == "shortcut")
    price = (
        f"{subject} cost {lost:.3f} of mean accuracy{rows} against {base['name']} and win {gain} in the "
        f"worst {word}{verdict}."
    )
    kept = round(less["worst_accuracy"] - base["worst_accuracy"], 3)
    if gain != "nothing" and kept <= 0 and not class_balance_sentence(record, less):
        return (
            f"{price} No milder weights keep this gain at a loss of at most {SUGGESTED_LOSS}: "
            f"`max_mean_loss: {SUGGESTED_LOSS}` would train at strength {less['strength']:.3g}, with "
            f"{less['worst_accuracy']:.3f} in the worst {word}."
        )
    return (
        f"{price} To lose less, train with `max_mean_loss: {SUGGESTED_LOSS}` "
        f"(`--set max_mean_loss={SUGGESTED_LOSS}` for `rowsieve retrain`): on these rows that is strength "
        f"{less['strength']:.3g}, with {less['worst_accuracy']:.3f} in the worst {word} and "
        f"{less['mean_accuracy']:.3f} in all rows.{class_balance_sentence(record, less)}"
    )


def class_balance_sentence(record: Mapping[str, Any], chosen: Mapping[str, Any]) -> str:
    """Say, after a space, that class balance serves the worst group better than a chosen point of the curve.

    It is empty where it does not, or was not measured.
    """
    word = group_word(record)
    balance = next((p for p in record["points"] if abs(p["strength"] - CLASS_BALANCE) < SAME), chosen)
    if balance["worst_accuracy"] <= chosen["worst_accuracy"] + SAME:
        return ""
    return (
        f" Class balance (strength 1) is better for the worst {word}: {balance['worst_accuracy']:.3f} "
        f"against {chosen['worst_accuracy']:.3f}, with {balance['mean_accuracy']:.3f} against "
        f"{chosen['mean_accuracy']:.3f} in all rows."
    )


def is_overpriced(record: Mapping[str, Any]) -> bool:
    """Return whether the published weights cost much mean accuracy and more than the worst group wins."""
    paid = _price(record)
    return paid is not None and paid[0] > max(NOTABLE_LOSS, paid[1])


def _price(record: Mapping[str, Any]) -> tuple[float, float, Mapping[str, Any]] | None:
    """Return lost mean accuracy, the gain of the worst group, and against what; None without a point."""
    point, base = published_point(record), baseline_of(record)
    if point is None:
        return None
    if abs(point["strength"] - base["strength"]) < SAME:
        base = {**record["points"][0], "name": BASELINES[0.0]}
    lost, won = (
        base["mean_accuracy"] - point["mean_accuracy"],
        point["worst_accuracy"] - base["worst_accuracy"],
    )
    return lost, won, base


def group_word(record: Mapping[str, Any]) -> str:
    """Return what the worst is looked for among: "class" or "group"."""
    return "class" if record["grouping"] == "classes" else "group"


def table_rows(record: Mapping[str, Any], chosen: float | None = None) -> list[tuple[str, ...]]:
    """Return the rows of the table under ``COLUMNS``; the chosen strength is marked."""
    return [
        (
            f"{point['strength']:.3g}" + _mark(point["strength"], record, chosen),
            f"{point['mean_accuracy']:.3f}",
            f"{point['worst_accuracy']:.3f}",
            f"{point['worst_low']:.3f}-{point['worst_high']:.3f}",
            f"{point['worst_rows']:,}",
            f"{point['effective_share']:.0%}",
            str(point["worst_group"]),
        )
        for point in record["points"]
    ]


def _mark(strength: float, record: Mapping[str, Any], chosen: float | None) -> str:
    """Return what a row of the table is: chosen, published, or nothing of it."""
    if strength == chosen:
        return " (chosen)"
    published = record.get("published_strength")
    return " (published)" if published is not None and abs(strength - published) < SAME else ""


OF_WHOLE_CLASSES = (
    "This is of whole classes, as they are not divided by a shortcut: the rows of a class that break one may "
    "gain nevertheless, as the `gain` of a suspect says."
)


def summary_sentence(record: Mapping[str, Any]) -> str:
    """Say where the baseline lies and how far the curve goes beyond it."""
    points, word, base = record["points"], group_word(record), baseline_of(record)
    best = max(points, key=lambda point: (point["worst_accuracy"], -point["strength"]))
    text = (
        f"Baseline is the better of no weights and class balance, here {base['name']}: the worst {word} has "
        f"an accuracy of {base['worst_accuracy']:.3f} and all rows one of {base['mean_accuracy']:.3f}. "
    )
    if best["worst_accuracy"] <= base["worst_accuracy"]:
        text += f"No strength of weighting raises the worst {word}."
        return f"{text} {OF_WHOLE_CLASSES}" if word == "class" else text
    return text + (
        f"The worst {word} is best at strength {best['strength']:.3g}, {best['worst_accuracy']:.3f}, with a "
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
    for key, label, color in (("mean", "mean", "C0"), ("worst", f"worst {group_word(record)}", "C1")):
        axes.plot(x, [point[f"{key}_accuracy"] for point in points], marker="o", label=label, color=color)
        low, high = ([point[f"{key}_{end}"] for point in points] for end in ("low", "high"))
        axes.fill_between(x, low, high, color=color, alpha=0.15, lw=0)
    if point := published_point(record):
        axes.axvline(point["strength"], color="black", ls=":", lw=1, label="published")
    axes.set(xlabel="strength (0: none, 1: classes, 2: robust)", ylabel="accuracy on held-out rows")
    axes.legend(frameon=False, fontsize=8)


def _ring(axes: Axes, point: Mapping[str, Any], label: str, color: str) -> None:
    """Draw a ring around a point, and its label in the legend."""
    place = ([point["mean_accuracy"]], [point["worst_accuracy"]])
    axes.plot(*place, marker="o", ms=12, mfc="none", color=color, ls="none", label=label)
    axes.legend(frameon=False, fontsize=8)


def _joint_labels(
    points: Sequence[Mapping[str, Any]], left: float, right: float, low: float, high: float
) -> dict[str, tuple[float, float]]:
    """Return the labels of strengths 0, 1 and 2 and their places; strengths whose labels would lie on one
    another have one label, such as "0, 1", at the first of them.
    """
    found: list[tuple[list[str], tuple[float, float]]] = []
    for point in points:
        if point["strength"] not in (0.0, 1.0, 2.0):
            continue
        x, y = point["mean_accuracy"], point["worst_accuracy"]
        for texts, place in found:
            near_x = abs(x - place[0]) < LABEL_WIDTH * (right - left)
            if near_x and abs(y - place[1]) < LABEL_HEIGHT * (high - low):
                texts.append(f"{point['strength']:g}")
                break
        else:
            found.append(([f"{point['strength']:g}"], (x, y)))
    return {", ".join(texts): place for texts, place in found}


def _over_mean(axes: Axes, record: Mapping[str, Any], chosen: float | None) -> None:
    points = record["points"]
    x, y = ([point[f"{key}_accuracy"] for point in points] for key in ("mean", "worst"))
    axes.plot(x, y, marker="o", color="C1")
    for text, place in _joint_labels(points, *axes.get_xlim(), *axes.get_ylim()).items():
        axes.annotate(text, place, xytext=(4, 4), textcoords="offset points", fontsize=8)
    published = published_point(record)
    if published and published["strength"] != chosen:
        _ring(axes, published, f"published (strength {published['strength']:.3g})", "C0")
    for point in points:
        if point["strength"] == chosen:
            _ring(axes, point, "chosen", "black")
    axes.locator_params(axis="x", nbins=MAX_TICKS)
    axes.set(xlabel="mean accuracy", ylabel=f"accuracy of the worst {group_word(record)}")
