"""Assembles the page of a version from the engine's sections and the operators' sections."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from engine.core.output_layout import version_folder
from engine.plan.model import Plan
from engine.publish.parts import DATA
from engine.report.context import operator_sections, plan_operator, read_classes
from engine.report.described_groups import describe_groups
from engine.report.groups import (
    GroupRow,
    column_names,
    group_rows,
    group_to_inspect,
    marked_rows,
    summary_sentences,
    worst_group,
)
from engine.report.pictures import NOISE_STYLE, data_uri, png, style, symbol
from engine.report.point_maps import point_map_figures
from engine.report.rows import RowSample, sample_rows
from engine.report.scores import score
from engine.report.survey import Survey, survey
from engine.report.templates import template
from engine.report.times import time_section
from operators.base import GRADIENT, GROUP, PREDICTION, Executor
from operators.metrics.group_scores import MIN_ROWS
from operators.report import (
    Content,
    ExampleRows,
    Finding,
    Notice,
    RecipeChoices,
    ReportFigure,
    ReportSection,
    ReportTable,
)

MAX_FILES = 200
MAX_TABLE_ROWS = 200
"""Rows of a table that an operator contributes."""
OPENING = "pandas.read_parquet({folder!r})"
SPLITS = ("train", "validation", "test", "dropped")


def render(
    plan: Plan,
    manifest: dict[str, Any],
    metrics: dict[str, dict[str, float]],
    executor: Executor,
    descriptions: Mapping[str, Any] | None = None,
    warnings: Sequence[str] = (),
) -> str:
    """Render the report as HTML."""
    classes = read_classes(plan)
    found = survey(plan, executor)
    groups = group_rows(found, classes)
    contributed = operator_sections(plan, found, classes, metrics, executor)
    sections = [section for _, section in contributed]
    described = describe_groups(descriptions)
    samples = sample_rows(plan, found, groups, classes, described.central, sections)
    truth, oracle = plan.recipe.truth, oracle_columns(plan)
    sources = sorted(plan.listing.identities.items())
    folder = str(version_folder(plan.output, plan.version) / DATA)
    return template("report.html.j2").render(
        title=plan.recipe.report.title or plan.recipe.name,
        plan=plan,
        manifest=manifest,
        folder=folder,
        opening=OPENING.format(folder=folder),
        prefix=plan.recipe.output.prefix,
        classifier=_classifier(plan),
        sentences=summary_sentences(groups, found.quarantined, oracle),
        findings=[
            *(Finding(text, "warning") for text in warnings),
            *_first_of_each_subject(finding for one in sections for finding in one.findings),
        ],
        **table_of_groups(found, groups),
        described=described,
        maps=point_map_figures(plan, [one for section in sections for one in section.point_maps], groups),
        sections=list(printable_sections(contributed, iter(samples.sections))),
        has_choices=any(isinstance(item, RecipeChoices) for one in sections for item in one.content),
        samples=samples,
        has_gradients=GRADIENT in plan.reader().columns,
        truth=truth,
        oracle=column_names(oracle) if oracle else "",
        scores=score(found, truth.group, truth.outlier),
        operators=operator_records(plan, metrics),
        time=time_section(plan),
        files=sources[:MAX_FILES],
        more_files=max(0, len(sources) - MAX_FILES),
    )


def _first_of_each_subject(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings except those that share the subject of an earlier one."""
    found = dict[str | int, Finding]()
    for number, finding in enumerate(findings):
        found.setdefault(finding.subject or number, finding)
    return [*found.values()]


def oracle_columns(plan: Plan) -> tuple[str, ...]:
    """Return the truth columns that the groups were read from; empty where they were inferred."""
    try:
        return plan_operator(plan, GROUP).operator.oracle_columns
    except KeyError:
        return ()


def _classifier(plan: Plan) -> str:
    """Return the name of the operator whose predictions the report shows; empty if there is none."""
    try:
        return plan_operator(plan, PREDICTION).name
    except KeyError:
        return ""


def table_of_groups(found: Survey, groups: list[GroupRow]) -> dict[str, Any]:
    """Return the values that the table of groups is made from."""
    present = {name for group in groups for name in group.splits}
    splits = [name for name in SPLITS if name in present] + sorted(present.difference(SPLITS))
    worst = worst_group(groups)
    return {
        "groups": groups,
        "everything": found.everything,
        "worst": worst,
        "least_rows": MIN_ROWS,
        "worst_members": {(group.y, group.group) for group in worst.members} if worst else set(),
        "inspect": group_to_inspect(groups),
        "marked": marked_rows(found),
        "quarantined": found.quarantined,
        "splits": splits,
        "split_rows": {name: sum(group.splits.get(name, 0) for group in groups) for name in splits},
        "colour": {(g.y, g.group): NOISE_STYLE[0] if g.is_noise else style(g.rank)[0] for g in groups},
        "symbol": {(g.y, g.group): "✕" if g.is_noise else symbol(g.rank) for g in groups},
    }


def printable_sections(
    sections: Sequence[tuple[str, ReportSection]], samples: Iterator[RowSample]
) -> Iterator[dict[str, Any]]:
    """Convert the operators' sections for the template; those without content are left out.

    Parameters
    ----------
    samples
        The rows of every ``ExampleRows`` in ``sections``, in their order.
    """
    for operator, section in sections:
        items = [_printable(item, samples) for item in section.content]
        if items:
            yield {"operator": operator, "title": section.title, "items": items}


def _printable(item: Content, samples: Iterator[RowSample]) -> dict[str, Any]:
    """Convert one item of a section; ``kind`` tells the template how to print it."""
    if isinstance(item, Notice):
        return {"kind": "notice", "text": item.text}
    if isinstance(item, ReportTable):
        rows = item.rows[:MAX_TABLE_ROWS]
        numeric = [
            all(isinstance(row[i], int | float | None) or _is_share(row[i]) for row in rows)
            for i in range(len(item.columns))
        ]
        hidden = len(item.rows) - len(rows)
        return {"kind": "table", "table": item, "rows": rows, "numeric": numeric, "hidden": hidden}
    if isinstance(item, ReportFigure):
        uri = data_uri(item.image) if isinstance(item.image, bytes) else png(item.image)
        return {"kind": "figure", "figure": item, "png": uri}
    if isinstance(item, ExampleRows):
        return {"kind": "rows", "sample": next(samples)}
    if isinstance(item, RecipeChoices):
        return {"kind": "choices", "choices": item}
    return {"kind": "text", "text": item}


def _is_share(value: object) -> bool:
    """Return whether a text is a share in percent, a dash or empty, which is aligned as a number."""
    return isinstance(value, str) and (value in ("", "–") or value.endswith("%"))


def operator_records(plan: Plan, metrics: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """List each operator with its parameters and metrics."""
    return [
        {
            "name": planned.name,
            "version": planned.operator.version,
            "params": {key: json.dumps(value, ensure_ascii=False) for key, value in planned.params.items()},
            "fingerprint": planned.fingerprint,
            "metrics": metrics.get(planned.name, {}),
        }
        for planned in plan.operators
    ]
