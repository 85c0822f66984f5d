"""Figures and images as PNG data URIs, and the colours of groups."""

from __future__ import annotations

import base64
import io
import warnings
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.image import imsave
from numpy.typing import NDArray

from operators.report.figures import COLOURS

DPI = 100
MARKERS = ("o", "^", "s", "D")
SYMBOLS = ("●", "▲", "■", "◆")
NOISE_STYLE = ("#767676", "x")
REST_STYLE = ("#C8C8C8", "o")
STYLES = len(COLOURS) * len(MARKERS)


def style(rank: int) -> tuple[str, str]:
    """Return colour and marker of the group with this rank (from 0)."""
    if rank >= STYLES:
        return REST_STYLE
    return COLOURS[rank % len(COLOURS)], MARKERS[rank // len(COLOURS)]


def symbol(rank: int) -> str:
    """Return the marker of :func:`style` as a character."""
    return SYMBOLS[rank // len(COLOURS)] if rank < STYLES else SYMBOLS[0]


def png(figure: Figure) -> str:
    """Render a figure as a data URI."""
    return data_uri(png_bytes(figure))


def png_bytes(figure: Figure) -> bytes:
    """Render a figure to PNG, on white."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # Names of groups may be in scripts that the built-in font lacks: boxes are drawn instead.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="png", dpi=DPI, facecolor="white")
    return buffer.getvalue()


def sprite(images: NDArray[Any]) -> str:
    """Put images side by side into one PNG data URI.

    Parameters
    ----------
    images
        (n, height, width) or (n, height, width, 3) in [0, 1].
    """
    buffer = io.BytesIO()
    strip = np.concatenate(list(images), axis=1)
    imsave(buffer, strip, vmin=0, vmax=1, cmap="gray", format="png")
    return data_uri(buffer.getvalue())


def data_uri(content: bytes) -> str:
    """Encode the bytes of a PNG file as a data URI."""
    return "data:image/png;base64," + base64.b64encode(content).decode("ascii")
