"""The section of ``dckm`` and ``decorrelation`` in the report."""

from __future__ import annotations

from collections.abc import Mapping

from operators.counts import count
from operators.report import Content, Notice, ReportSection
from operators.report.text import number


def balance_section(name: str, metrics: Mapping[str, float]) -> ReportSection | None:
    """Return a section on the features' correlation before and after weighting; None without metrics."""
    if not metrics:
        return None
    clusters = f" in {count(int(metrics['clusters']), 'cluster')}" if "clusters" in metrics else ""
    content: list[Content] = [
        f"The weights lower the correlation of the features (Frobenius norm of the off-diagonal covariance) "
        f"from {number(metrics['correlation_before'], 2)} to {number(metrics['correlation_after'], 2)}"
        f"{clusters}. Their effective sample size is "
        f"{number(round(metrics['effective_sample_size']))} rows."
    ]
    if metrics.get("limited"):
        content.append(
            Notice(
                "The optimisation ended where the weights reached their least effective sample size. Lower "
                f"operators.{name}.min_effective_share for less correlation, on fewer rows."
            )
        )
    elif not metrics.get("converged", 1):
        content.append(
            Notice(f"The optimisation stopped before it converged. Raise operators.{name}.max_iter.")
        )
    return ReportSection("Decorrelation weights", content)
