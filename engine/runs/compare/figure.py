"""The comparison as a picture: a panel for each score, a bar for each method."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from connectors.storage import Place, write_whole
from engine.runs.compare.scores import Entry
from operators.report.figures import COLOURS, disable_math, own_style

PANELS = {
    "ari": "adjusted Rand index",
    "minority_recall": "minority recall",
    "outlier_precision": "outlier precision",
    "outlier_recall": "outlier recall",
}


def draw(entries: Sequence[Entry], title: str, path: Place) -> None:
    """Write the picture as PNG; panels without any figure are left out."""
    with own_style():
        write_whole(path, _picture(entries, title))


def _picture(entries: Sequence[Entry], title: str) -> bytes:
    panels = [name for name in PANELS if any(not math.isnan(getattr(e.scores, name)) for e in entries)]
    figure = Figure(figsize=(2.6 * (len(panels) + 1) + 1.5, 0.36 * len(entries) + 1.4), layout="constrained")
    axes = figure.subplots(1, len(panels) + 1, sharey=True, squeeze=False)[0]
    for ax, name in zip(axes, panels, strict=False):
        _bars(ax, [getattr(entry.scores, name) for entry in entries])
        ax.set_xlim(min(0.0, *(v for v in _values(entries, name))), 1.18)
        ax.set_title(PANELS[name], fontsize=9)
        if name == "ari":
            ax.axvline(entries[0].scores.floor, color="#333333", linestyle="--", linewidth=1)
    _bars(axes[-1], [entry.seconds for entry in entries])
    axes[-1].margins(x=0.25)
    axes[-1].set_title("seconds", fontsize=9)
    axes[0].set_yticks(range(len(entries)), [entry.method for entry in entries])
    axes[0].invert_yaxis()
    disable_math(figure.suptitle(title, fontsize=10))
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=130, facecolor="white")
    return picture.getvalue()


def _values(entries: Sequence[Entry], name: str) -> list[float]:
    found = [float(getattr(entry.scores, name)) for entry in entries]
    return [0.0, *(value for value in found if not math.isnan(value))]


def _bars(ax: Any, values: Sequence[float]) -> None:
    """Draw one bar for each method; a dash if the score is undefined."""
    heights = [0.0 if math.isnan(value) else value for value in values]
    ax.barh(range(len(values)), heights, color=["#9A9A9A"] + [COLOURS[0]] * (len(values) - 1))
    for row, (value, height) in enumerate(zip(values, heights, strict=True)):
        text = "–" if math.isnan(value) else f"{value:.3g}"
        ax.annotate(
            text, (max(height, 0.0), row), (3, 0), textcoords="offset points", va="center", fontsize=8
        )
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    ax.tick_params(labelsize=8)
