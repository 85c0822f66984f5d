"""What weights and split have come to, in words and as curves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from engine.plan.model import Plan
from engine.report.pictures import COLOURS, Margins, inch_panels, plain, png
from engine.report.words import count, number, percent

MOST_CLASSES = 6
MARGINS = Margins(left=0.7, right=0.2, bottom=0.55, top=0.4)
Metrics = Mapping[str, float]


@dataclass(frozen=True)
class Step:
    """One operator: what it did, and its picture (a PNG data URI) if it has one."""

    name: str
    text: str
    picture: str = ""
    caption: str = ""


def measured(plan: Plan, metrics: Mapping[str, Metrics], classes: list[str]) -> list[Step]:
    """Operators that weigh rows or split them, in the order of the chain; only those that left metrics."""
    steps = []
    for planned in plan.operators:
        found, tell = metrics.get(planned.name), SENTENCES.get(planned.name)
        if not found or tell is None:
            continue
        picture, caption = "", ""
        if planned.name == "eos":
            picture = alpha_curve(plan, classes)
            caption = (
                "Smaller alpha, more unequal weights. Solid: effective share of the rows; dashed: share that "
                "is flagged; the line marks the alpha that was taken."
            )
        steps.append(Step(planned.name, tell(found), picture, caption if picture else ""))
    return steps


def _eos(found: Metrics) -> str:
    collapsed = found.get("collapsed", 0)
    warning = (
        f" In {count(int(collapsed), 'class')} the weights rest on too few rows: raise alpha."
        if collapsed
        else ""
    )
    return (
        f"EOS marks {count(int(found['outliers']), 'row')}; its weights are worth "
        f"{number(round(found['effective_sample_size']))} rows.{warning}"
    )


def _decorrelated(found: Metrics) -> str:
    clusters = f", in {count(int(found['clusters']), 'cluster')}" if "clusters" in found else ""
    open_end = "" if found.get("converged", 1) else " It had not settled when it stopped: raise max_iter."
    return (
        f"The features' correlation (Frobenius norm of the off-diagonal covariance) falls from "
        f"{number(found['correlation_before'], 2)} to {number(found['correlation_after'], 2)}{clusters}; the "
        f"weights are worth {number(round(found['effective_sample_size']))} rows.{open_end}"
    )


def _weights(found: Metrics) -> str:
    share = found.get("effective_share")
    of = "" if share is None else f", {percent(share)} of those that are kept"
    few = "" if share is None or share >= 0.1 else " Training on them rests on few rows."
    return (
        f"All weights together are worth {number(round(found['effective_sample_size']))} rows{of}; the "
        f"largest is {number(found['largest_weight'], 1)}; {count(int(found['doubted']), 'row')} count for "
        f"less than their share.{few}"
    )


def _split(found: Metrics) -> str:
    if "mmd" not in found:
        return ""
    floor = found.get("mmd_random")
    beside = "" if floor is None else f"; a random split of these sizes: {number(floor)}"
    return (
        f"Validation and train rows lie {number(found['mmd'])} apart (maximum mean discrepancy of the "
        f"features){beside}."
    )


SENTENCES = {
    "eos": _eos,
    "dckm": _decorrelated,
    "decorrelation": _decorrelated,
    "weights": _weights,
    "split": _split,
}


def alpha_curve(plan: Plan, classes: list[str]) -> str:
    """EOS's effective share and flagged share over alpha, a panel for each model; empty without a curve."""
    path = plan.store.state(plan.fingerprint_of("eos")) / "eos.json"
    record: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    curves = dict(list(record.get("curve", {}).items())[:MOST_CLASSES])
    if not any(curves.values()):
        return ""
    figure = Figure(figsize=(min(9.4, 4.2 * len(curves)), 3.0))
    panels = inch_panels(figure, 1, len(curves), MARGINS)[0]
    for axes, (key, points) in zip(panels, curves.items(), strict=True):
        alphas = [point["alpha"] for point in points]
        axes.plot(alphas, [p["effective_share"] for p in points], color=COLOURS[0])
        axes.plot(alphas, [p["flagged_share"] for p in points], color=COLOURS[5], ls="--")
        model = record.get("models", {}).get(key, record)
        axes.axvline(model["tally"]["alpha"], color="#767676", lw=1)
        axes.set(xscale="log", ylim=(0, 1.02), xlabel="alpha", ylabel="share of the rows")
        ticks = np.geomspace(min(alphas), max(alphas), 4)
        axes.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        named = key.isdigit() and int(key) < len(classes)
        plain(axes.set_title(f"class {classes[int(key)]}" if named else "all rows", fontsize=10))
        axes.spines[["top", "right"]].set_visible(False)
    return png(figure)
