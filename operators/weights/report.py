"""The operator's section of the report."""

from __future__ import annotations

from collections.abc import Mapping

from operators.report import Finding, ReportSection
from operators.report.text import count, number, percent
from operators.weights.totals import LOW


def weight_section(metrics: Mapping[str, float]) -> ReportSection | None:
    """Say how unequal the weights are; None without metrics."""
    if not metrics:
        return None
    share = metrics.get("effective_share")
    rows = number(round(metrics["effective_sample_size"]))
    of_kept = "" if share is None else f", {percent(share)} of the rows that are kept"
    doubted = int(metrics["doubted"])
    text = (
        f"The effective sample size of the weights is {rows} rows{of_kept}. The largest weight is "
        f"{number(metrics['largest_weight'], 1)}. "
        f"{count(doubted, 'row')} {'has' if doubted == 1 else 'have'} a reduced weight because a classifier "
        "that was trained without them doubts their label."
    )
    findings = []
    if share is not None and share < LOW:
        findings.append(
            Finding(
                f"The weights are very unequal: training with them is worth only {rows} rows "
                f"({percent(share)}).",
                "warning",
            )
        )
    return ReportSection("Sample weights", [text], findings)
