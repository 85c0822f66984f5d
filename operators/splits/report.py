"""The operator's section of the report."""

from __future__ import annotations

from collections.abc import Mapping

from operators.report import ReportSection
from operators.report.text import number


def split_section(metrics: Mapping[str, float]) -> ReportSection | None:
    """Return a section with the MMD between validation and training rows, or None without ``mmd``."""
    if "mmd" not in metrics:
        return None
    floor = metrics.get("mmd_random")
    beside = "" if floor is None else f" A random split of the same sizes would have {number(floor)}."
    return ReportSection(
        "Training and validation rows",
        [
            f"The maximum mean discrepancy between the features of validation and training rows is "
            f"{number(metrics['mmd'])}.{beside}"
        ],
    )
