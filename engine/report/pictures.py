"""Figures to PNG data URIs, and the colours of groups. Matplotlib's object API only: no global state."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imsave
from numpy.typing import NDArray

# Okabe and Ito's colour-blind safe palette, without black and the yellow that is lost on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
MARKERS = ("o", "^", "s", "D")
SYMBOLS = ("●", "▲", "■", "◆")
NOISE_STYLE = ("#767676", "x")
REST_STYLE = ("#C8C8C8", "o")
STYLES = len(COLOURS) * len(MARKERS)


def style(rank: int) -> tuple[str, str]:
    """Colour and marker of the group with this rank (from 0)."""
    if rank >= STYLES:
        return REST_STYLE
    return COLOURS[rank % len(COLOURS)], MARKERS[rank // len(COLOURS)]


def symbol(rank: int) -> str:
    """The marker of :func:`style` as a character."""
    return SYMBOLS[rank // len(COLOURS)] if rank < STYLES else SYMBOLS[0]


def png(figure: Figure) -> str:
    """The figure as a data URI, on white."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Names of groups may be in scripts that the built-in font lacks: boxes are drawn instead.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="png", dpi=130, facecolor="white")
    return data_uri(buffer.getvalue())


class Margins(NamedTuple):
    """Inches around each panel of a figure, for its labels and title."""

    left: float
    right: float
    bottom: float
    top: float


def inch_panels(
    figure: Figure, n_rows: int, n_columns: int, margins: Margins, widths: Sequence[float] = ()
) -> NDArray[Any]:
    """(n_rows, n_columns) axes in equal cells (or cells of these relative widths), margins inside each.

    Matplotlib's own layouts draw every text twice to measure it, which took most of a report's time.
    """
    width, height = figure.get_size_inches()
    shares = np.asarray(widths or [1.0] * n_columns)
    edges = width * np.concatenate([[0.0], np.cumsum(shares) / shares.sum()])
    panels = np.empty((n_rows, n_columns), object)
    for i, j in np.ndindex(n_rows, n_columns):
        left, right = edges[j] + margins.left, edges[j + 1] - margins.right
        bottom = height * (1 - (i + 1) / n_rows) + margins.bottom
        top = height * (1 - i / n_rows) - margins.top
        panels[i, j] = figure.add_axes(
            (left / width, bottom / height, (right - left) / width, (top - bottom) / height)
        )
    return panels


def sprite(images: NDArray[Any]) -> str:
    """Pictures side by side as one PNG data URI.

    Parameters
    ----------
    images : (n, height, width) or (n, height, width, 3) in [0, 1].
    """
    buffer = io.BytesIO()
    strip = np.concatenate(list(images), axis=1)
    imsave(buffer, strip, vmin=0, vmax=1, cmap="gray", format="png")
    return data_uri(buffer.getvalue())


def data_uri(content: bytes) -> str:
    """PNG bytes as a data URI."""
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")


def plain(text: Any) -> None:
    """Text of the data is no formula: without this, a ``$`` in a name would be parsed as one."""
    text.set_parse_math(False)
