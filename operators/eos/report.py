"""The operator's section of the report: flagged rows, and how alpha was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from operators.base import ReportContext
from operators.bounded_json import read_json
from operators.counts import count
from operators.eos.state import RECORD
from operators.report import Content, Finding, ReportFigure, ReportSection
from operators.report.text import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_CLASSES = 6
"""Classes whose curves are drawn."""


def eos_section(context: ReportContext) -> ReportSection | None:
    """Describe the weights and draw their shares over alpha; None without metrics."""
    metrics = context.metrics
    if not metrics:
        return None
    content: list[Content] = [
        f"EOS flags {count(int(metrics['outliers']), 'row')}. The effective sample size of its weights is "
        f"{number(round(metrics['effective_sample_size']))} rows."
    ]
    figure = alpha_figure(context)
    if figure is not None:
        caption = (
            "The smaller alpha is, the more unequal are the weights. Solid: effective sample size as a share "
            "of the rows. Dashed: share of the rows that is flagged. The vertical line is the chosen alpha."
        )
        content.append(ReportFigure(figure, "Shares of the rows over alpha", caption=caption))
    findings = []
    if collapsed := int(metrics.get("collapsed", 0)):
        text = f"In {count(collapsed, 'class')} the EOS weights concentrate on too few rows. Raise alpha."
        findings.append(Finding(text, "warning"))
    if too_small := int(metrics.get("too_small", 0)):
        text = (
            f"EOS has too few rows of {count(too_small, 'class')} to choose alpha: their rows weigh 1, and "
            "none is flagged."
        )
        findings.append(Finding(text, "warning"))
    return ReportSection("Entropic outlier sparsification (EOS)", content, findings)


def alpha_figure(context: ReportContext) -> Figure | None:
    """Draw the effective and the flagged share over alpha, one panel for each model; None without a curve."""
    path = context.state / RECORD
    record: dict[str, Any] = read_json(path) if path.exists() else {}
    drawn = [(key, points) for key, points in record.get("curve", {}).items() if points]
    curves = dict(drawn[:MAX_CLASSES])
    if not curves:
        return None
    from matplotlib.figure import Figure

    from operators.report.figures import WIDTH, Margins, add_panels, disable_math

    margins = Margins(left=0.7, right=0.2, bottom=0.55, top=0.4)
    figure = Figure(figsize=(min(WIDTH, 4.2 * len(curves)), 2.8))
    panels = add_panels(figure, 1, len(curves), margins)[0]
    for axes, (key, points) in zip(panels, curves.items(), strict=True):
        model = record.get("models", {}).get(key, record)
        _draw_curve(axes, points, float(model["statistics"]["alpha"]))
        disable_math(axes.set_title(_title(key, context.classes), fontsize=10))
    return figure


def _draw_curve(axes: Any, points: Sequence[dict[str, float]], chosen: float) -> None:
    from operators.report.figures import COLOURS

    alphas = [point["alpha"] for point in points]
    axes.plot(alphas, [p["effective_share"] for p in points], color=COLOURS[0])
    axes.plot(alphas, [p["flagged_share"] for p in points], color=COLOURS[5], ls="--")
    axes.axvline(chosen, color="#767676", lw=1)
    axes.set(xscale="log", ylim=(0, 1.02), xlabel="alpha", ylabel="share of the rows")
    ticks = np.geomspace(min(alphas), max(alphas), 4)
    axes.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.spines[["top", "right"]].set_visible(False)


def _title(key: str, classes: Sequence[str]) -> str:
    named = key.isdigit() and int(key) < len(classes)
    return f"class {classes[int(key)]}" if named else "all rows"
