"""Numbers, shares and values as text for readers of a report."""

from __future__ import annotations

import math

from connectors.foundation.messages import cut
from operators.counts import count

NBSP = "\u00a0"
DASH = "–"


def number(value: float, digits: int = 3) -> str:
    """Format a whole number with thousands separators, others with ``digits`` decimals, nan as a dash."""
    if isinstance(value, float) and not math.isfinite(value):
        return DASH
    if float(value).is_integer():
        return f"{int(value):,}"
    if 0 < abs(value) < 10**-digits:
        return f"{value:.1e}"
    return f"{value:,.{digits}f}"


def percent(share: float) -> str:
    """Format a share in percent with one decimal, or none if it is a whole number; nan as a dash.

    A share that is neither 0 nor 1 is never rounded to 0 % or 100 %.
    """
    if math.isnan(share):
        return DASH
    value = 100 * share
    if 0 < value < 0.1:
        return f"<{NBSP}0.1{NBSP}%"
    if 99.9 < value < 100:
        return f">{NBSP}99.9{NBSP}%"
    return f"{value:.1f}".removesuffix(".0") + f"{NBSP}%"


def interval(ends: tuple[float, float]) -> str:
    """Format two shares as an interval in percent, such as ``89.6 – 92.3 %``; nan as a dash."""
    if math.isnan(ends[0]):
        return DASH
    return f"{100 * ends[0]:.1f} – {100 * ends[1]:.1f}{NBSP}%"


def short(value: object, length: int = 80) -> str:
    """Format any value, cut to ``length`` characters; a list of numbers becomes ``[64 numbers]``."""
    if isinstance(value, list | tuple):
        kind = "number" if all(isinstance(v, int | float) for v in value) else "value"
        return f"[{count(len(value), kind)}]"
    if value is None:
        return DASH
    if isinstance(value, bytes):
        return f"[{count(len(value), 'byte')}]"
    text = f"{value:.5g}" if isinstance(value, float) else str(value)
    return cut(text, length)
