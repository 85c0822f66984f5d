"""Helpers for drawing figures of a report with matplotlib's object interface, which has no global state."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style
from matplotlib.figure import Figure
from numpy.typing import NDArray

# The colour-blind safe palette of Okabe and Ito, without black, and without the yellow that is hard to see on
# white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
WIDTH = 9.4
"""Width in inches of a figure that fills the page."""


@contextmanager
def own_style() -> Iterator[None]:
    """Give figures matplotlib's own defaults, and silence its warnings of characters that its font lacks.

    Otherwise a ``matplotlibrc`` of the working directory holds, which may be a folder of data. It could have
    texts set by LaTeX, with a preamble that reads files; and the same version would give another picture.
    A character that the font lacks, such as an emoji in a name of the data, is drawn as an empty box.
    """
    with style.context("default"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
        yield


class Margins(NamedTuple):
    """Inches around each panel of a figure, for its labels and title."""

    left: float
    right: float
    bottom: float
    top: float


def add_panels(
    figure: Figure, n_rows: int, n_columns: int, margins: Margins, widths: Sequence[float] = ()
) -> NDArray[Any]:
    """Divide a figure into cells and add axes to each, inside the margins.

    Matplotlib's own layouts draw every text twice to measure it, which took most of a report's time.

    Parameters
    ----------
    widths : relative widths of the columns; default: all equal.

    Returns
    -------
    (n_rows, n_columns) axes.
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


def disable_math(text: Any) -> None:
    """Draw a matplotlib text as it is: a ``$`` in a name from the data must not be parsed as a formula."""
    text.set_parse_math(False)
