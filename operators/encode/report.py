"""The report's section on ``encode``: every column with its use, and maps of feature space; its warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from operators.base import FEATURES, ReportContext
from operators.bounded_json import read_json
from operators.counts import count
from operators.encode.column_use import Kind, Unused
from operators.encode.params import EncodeParams, TextParams
from operators.encode.shared_features import LIMITED, limit_warning
from operators.encoded_features import STATE
from operators.report import Finding, ReportSection, ReportTable


def unread_texts(params: EncodeParams, state: Callable[[], Path]) -> tuple[str, ...]:
    """Return a sentence for each column of text that the recipe has settings for and no network reads.

    Parameters
    ----------
    params : of the operator.
    state : returns the folder with its state, which is read only where the recipe has settings for text.
    """
    named = {name for name, own in params.columns.items() if own.kind == Kind.TEXT}
    has_settings = params.text != TextParams()
    if params.text.model is not None or not (named or has_settings):
        return ()
    uses = read_json(state() / STATE)["uses"]
    return tuple(
        f"the column {name!r} gives no features, although the recipe has settings for text: {use['note']}."
        for name, use in uses.items()
        if use["reason"] == Unused.TEXT and (has_settings or name in named)
    )


def limited_columns(state: Callable[[], Path]) -> tuple[str, ...]:
    """Return a sentence about the columns that share the features of all and get fewer than alone, if any.

    Parameters
    ----------
    state : returns the folder with the operator's state.
    """
    limited = read_json(state() / STATE).get(LIMITED)
    return (limit_warning(limited),) if limited else ()


def encoding_section(context: ReportContext, warnings: Sequence[str]) -> ReportSection:
    """Describe how each source column was used, and show the operator's warnings."""
    from operators.planes import vector_maps

    state = read_json(context.state / STATE)
    widths = Counter(output["source"] for output in state["outputs"])
    uses, summaries = state["uses"], state["summaries"]
    rows = [_row(name, uses[name], summaries[name], widths[name]) for name in uses]
    unused = [name for name in uses if not widths[name]]
    n_rows = max((summary["rows"] for summary in summaries.values()), default=0)
    table = ReportTable(
        ("column", "used as", "features", "missing", "distinct", "examples", "note"),
        rows,
        "Source columns and their use. Missing and distinct values are counted in the "
        f"{count(n_rows, 'row')} learnt from. A missing number or date is replaced by the median, and where "
        "enough rows lack one a feature says so; a missing category is a category. A row with an infinite "
        "number is faulty.",
    )
    text = f"{len(uses) - len(unused)} of {len(uses)} columns give {sum(widths.values())} features."
    findings = [Finding(f"Columns that are not used as features: {', '.join(unused)}.")] if unused else []
    doubts = ((name, use.get("warning")) for name, use in uses.items())
    findings += [Finding(f"Column {name}: {text}.") for name, text in doubts if text]
    findings += [Finding(f"{text[0].upper()}{text[1:]}", "warning") for text in warnings]
    return ReportSection(
        "Columns",
        [text, table],
        findings=findings,
        point_maps=vector_maps(context, FEATURES, "Feature space", scaled=True),
    )


def _row(
    name: str, use: dict[str, Any], summary: dict[str, Any], width: int
) -> list[str | int | float | None]:
    share = summary["missing"] / summary["rows"] if summary["rows"] else 0.0
    kind = use["kind"] if use["reason"] is None else f"unused: {use['reason']}"
    about = "" if summary["distinct_is_exact"] else "about "
    examples = ", ".join(text[:24] for text in summary["examples"])
    return [
        name,
        kind,
        width,
        f"{share:.1%}" if summary["missing"] else "none",
        f"{about}{summary['distinct']:,}",
        examples,
        use["note"],
    ]
