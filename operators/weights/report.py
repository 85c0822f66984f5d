"""The operator's section of the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from operators.counts import count
from operators.report import Finding, ReportSection
from operators.report.text import number, percent
from operators.weights.totals import rests_on_few_rows


def warnings_beside_cues(setting: str, *, drops: bool) -> tuple[str, ...]:
    """Say that the figures of ``cues`` are of other weights than the published ones.

    Parameters
    ----------
    setting : from ``WeightsParams.setting_beside_cues``; empty if the weights are those of ``cues``.
    drops : whether rows that are marked as outliers weigh 0.
    """
    own = (
        "the figures of operators.cues are of its own weights. The published ones may be others, as "
        f"operators.weights says `{setting}`. Score a trained model on rows whose labels you know."
    )
    dropped = (
        "rows marked as outliers weigh 0 (drop_outliers), while the figures of operators.cues are of "
        "weights that keep them: by the published weights the worst group and all rows may be right more "
        "or less often. Score a trained model on rows whose labels you know."
    )
    return (*([own] if setting else ()), *([dropped] if drops else ()))


def weight_section(metrics: Mapping[str, float], sentences: Sequence[str] = ()) -> ReportSection | None:
    """Say how unequal the weights are, followed by ``sentences`` on the classes; None without metrics."""
    if not metrics:
        return None
    share = metrics.get("effective_share")
    rows = number(round(metrics["effective_sample_size"]))
    of_kept = ""
    if share:
        kept = round(metrics["effective_sample_size"] / share)
        of_kept = f", {percent(share)} of the {count(kept, 'row')} learnt from that are kept"
    doubted = int(metrics["doubted"])
    text = (
        f"The effective sample size of the weights is {rows} rows{of_kept}. The largest weight is "
        f"{number(metrics['largest_weight'], 1)}. "
        f"{count(doubted, 'row')} {'has' if doubted == 1 else 'have'} a reduced weight because a classifier "
        "that was trained without them doubts their label."
    )
    findings = []
    by_classes = metrics.get("class_effective_share", 0.0)
    if share is not None and rests_on_few_rows(share, 1, by_classes):
        findings.append(
            Finding(
                f"The weights are very unequal: training with them is worth only {rows} rows "
                f"({percent(share)}).",
                "warning",
            )
        )
    findings += [Finding(sentence) for sentence in sentences if sentence]
    return ReportSection("Sample weights", [text], findings)
