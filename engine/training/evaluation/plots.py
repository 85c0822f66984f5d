"""Figures of an evaluation, drawn by matplotlib without a display."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.training.evaluation.by_group import Evaluation, GroupTable
from engine.training.evaluation.regression_scores import LossTable, RegressionEvaluation
from operators.counts import count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PLOTS = "plots"
"""Folder of pictures in a model's folder."""
STRENGTH = "strength.png"
IMPORTANCE = "importance.png"
MAX_GROUPS = 40
"""Groups that one picture shows: the worst ones."""


def draw(evaluation: Evaluation, folder: Path, title: str = "") -> list[Path]:
    """Write ``cvar.png``, ``calibration.png`` and ``groups-<grouping>.png``; return the paths."""
    from operators.report.figures import own_style

    folder.mkdir(parents=True, exist_ok=True)
    with own_style():
        paths = [_save(folder / "cvar.png", lambda ax: _cvar(ax, evaluation), title)]
        paths.append(_save(folder / "calibration.png", lambda ax: _calibration(ax, evaluation), title))
        for name, table in evaluation.groupings.items():
            path = folder / f"groups-{name}.png"
            paths.append(_save(path, lambda ax: _groups(ax, table, name), title))  # noqa: B023
    return paths


def draw_losses(evaluation: RegressionEvaluation, folder: Path, title: str = "") -> list[Path]:
    """Write ``groups-<grouping>.png`` of a regression; return the paths."""
    from operators.report.figures import own_style

    folder.mkdir(parents=True, exist_ok=True)
    with own_style():
        return [
            _save(folder / f"groups-{name}.png", lambda ax: _losses(ax, table, name), title)  # noqa: B023
            for name, table in evaluation.groupings.items()
        ]


def draw_strength(strength: Mapping[str, Any], folder: Path) -> Path:
    """Write ``strength.png``: the trade-off over the strength of weighting, with the choice."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from operators.cues.output.curve_report import draw as draw_curve
    from operators.report.figures import own_style

    folder.mkdir(parents=True, exist_ok=True)
    with own_style():
        figure = draw_curve(strength["trade_off"], strength["strength"])
        FigureCanvasAgg(figure)
        figure.savefig(folder / STRENGTH, dpi=120, metadata={"Software": None})
    return folder / STRENGTH


def draw_importance(importance: Mapping[str, Any], folder: Path) -> Path:
    """Write ``importance.png``: the loss of accuracy without each source column."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from operators.report.figures import own_style
    from operators.report.importances import draw as draw_bars

    folder.mkdir(parents=True, exist_ok=True)
    with own_style():
        figure = draw_bars(importance)
        FigureCanvasAgg(figure)
        figure.savefig(folder / IMPORTANCE, dpi=120, metadata={"Software": None})
    return folder / IMPORTANCE


def _save(path: Path, paint: object, title: str) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    paint(axes)  # type: ignore[operator]
    axes.spines[["top", "right"]].set_visible(False)
    if title:
        figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=120, metadata={"Software": None})
    return path


def _cvar(axes: Axes, evaluation: Evaluation) -> None:
    points = evaluation.cvar
    alphas = [point.alpha for point in points]
    axes.plot(alphas, [point.value for point in points], marker="o", label="model")
    if points and points[0].reweighted is not None:
        values = [float(point.reweighted or 0) for point in points]
        axes.plot(alphas, values, marker="s", label="mixed for each alpha")
    axes.plot(alphas, [p.deterministic for p in points], ls="--", color="grey", label="min(1, error/alpha)")
    axes.plot(alphas, [p.coin for p in points], ls=":", color="grey", label="1 - 1/classes")
    axes.set_xscale("log")
    axes.set(xlabel="alpha", ylabel="CVaR of the 0/1 loss", ylim=(0, 1.02))
    axes.legend(frameon=False, fontsize=8)


def _calibration(axes: Axes, evaluation: Evaluation) -> None:
    shape = evaluation.calibration
    axes.plot([0, 1], [0, 1], ls="--", color="grey")
    axes.plot(shape.confidence, shape.accuracy, marker="o")
    error = "" if shape.ece is None else f", expected error {shape.ece:.3f}"
    axes.set(xlabel=f"probability of the predicted class{error}", ylabel="accuracy", ylim=(0, 1.02))


def _losses(axes: Axes, table: LossTable, name: str) -> None:
    scored = [(score.loss, score) for score in table.groups if score.loss is not None]
    scored = sorted(scored, key=lambda entry: -entry[0])[:MAX_GROUPS][::-1]
    for place, (loss, score) in enumerate(scored):
        axes.plot([score.low, score.high], [place, place], color="grey", lw=2)
        axes.plot([loss], [place], marker="o", color="C0")
    axes.set_yticks(range(len(scored)), [f"{score.group} ({score.rows})" for _, score in scored], fontsize=7)
    axes.set(xlabel="mean loss, 95 % interval", ylabel=f"{name} group (rows)")
    axes.set_xlim(left=0)


def _groups(axes: Axes, table: GroupTable, name: str) -> None:
    scored = [score for score in table.groups if score.accuracy is not None]
    scored.sort(key=lambda score: score.accuracy or 0.0)
    scored = scored[:MAX_GROUPS][::-1]
    for place, score in enumerate(scored):
        axes.plot([score.low, score.high], [place, place], color="grey", lw=2)
        axes.plot([score.accuracy or 0.0], [place], marker="o", color="C0")
    axes.set_yticks(range(len(scored)), [f"{score.group} ({score.rows})" for score in scored], fontsize=7)
    missing = f"; {count(len(table.without_rows), 'group')} without rows" if table.without_rows else ""
    axes.set(xlabel=f"accuracy, 95 % Wilson interval{missing}", ylabel=f"{name} group (rows)", xlim=(0, 1.02))
