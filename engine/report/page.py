"""Puts the sections together and renders the template."""

from __future__ import annotations

import json
from typing import Any

from engine.core.output_layout import version_folder
from engine.plan.model import Plan
from engine.publish.parts import DATA
from engine.report.duplicates import near_duplicates
from engine.report.findings import Findings, sentences
from engine.report.grid_truth import grid_aris
from engine.report.groups import GroupRow, focus, group_rows, worst_group
from engine.report.measured import measured
from engine.report.pictures import NOISE_STYLE, style, symbol
from engine.report.rows import gallery
from engine.report.scores import score
from engine.report.selection import projected, read_grids, selection_figures
from engine.report.spaces import space_figures
from engine.report.statistics import Stat
from engine.report.survey import Survey, survey
from engine.report.templates import template
from engine.report.times import where_time_went
from engine.report.verdicts import sentence, verdicts
from operators.base import Executor

MOST_FILES = 200
OPENING = "pandas.read_parquet({folder!r})"
SPLITS = ("train", "validation", "test", "dropped")


def render(
    plan: Plan, manifest: dict[str, Any], metrics: dict[str, dict[str, float]], executor: Executor
) -> str:
    """The report as HTML."""
    classes = read_classes(plan)
    found = survey(plan, executor)
    groups = group_rows(found, classes)
    truth, grids = plan.recipe.truth, read_grids(plan, classes)
    verdict = verdicts(plan, found)
    sources = sorted(plan.listing.identities.items())
    folder = str(version_folder(plan.output, plan.version) / DATA)
    return template("report.html.j2").render(
        title=plan.recipe.report.title or plan.recipe.name,
        plan=plan,
        manifest=manifest,
        folder=folder,
        opening=OPENING.format(folder=folder),
        prefix=plan.recipe.output.prefix,
        sentences=[*sentences(findings(found, groups, classes)), *filter(None, [sentence(verdict)])],
        verdicts=verdict,
        steps=measured(plan, metrics, classes),
        **table_of_groups(found, groups),
        spaces=space_figures(plan, found, groups),
        selections=selection_figures(grids, grid_aris(plan, found, grids)),
        projected=projected(plan),
        duplicates=near_duplicates(plan),
        gallery=gallery(plan, found, groups, classes),
        truth=truth,
        scores=score(found, truth.group, truth.outlier),
        operators=operator_records(plan, metrics),
        time=where_time_went(plan),
        files=sources[:MOST_FILES],
        more_files=max(0, len(sources) - MOST_FILES),
    )


def table_of_groups(found: Survey, groups: list[GroupRow]) -> dict[str, Any]:
    """What the table of groups is made of."""
    there = {name for group in groups for name in group.splits}
    splits = [name for name in SPLITS if name in there] + sorted(there.difference(SPLITS))
    return {
        "groups": groups,
        "everything": found.total(lambda key: None).get(None, Stat()),
        "worst": worst_group(groups),
        "look_at": focus(groups),
        "splits": splits,
        "split_rows": {name: sum(group.splits.get(name, 0) for group in groups) for name in splits},
        "colour": {(g.y, g.group): NOISE_STYLE[0] if g.is_noise else style(g.rank)[0] for g in groups},
        "symbol": {(g.y, g.group): "✕" if g.is_noise else symbol(g.rank) for g in groups},
    }


def read_classes(plan: Plan) -> list[str]:
    """Names of the classes; ``y`` counts in this order."""
    path = plan.store.state(plan.fingerprint_of("ingest")) / "classes.json"
    return [str(name) for name in json.loads(path.read_text("utf-8"))["classes"]]


def findings(found: Survey, groups: list[GroupRow], classes: list[str]) -> Findings:
    """The numbers of the first paragraph."""
    everything = found.total(lambda key: None).get(None, Stat())
    noise = tuple(group for group in groups if group.is_noise)
    return Findings(
        rows=everything.rows,
        n_classes=len(classes),
        quarantined=found.quarantined,
        noise=sum(group.stat.rows for group in noise),
        outliers=sum(group.outliers for group in groups),
        groups=tuple(group for group in groups if not group.is_noise),
        noise_rows=noise,
        worst=worst_group(groups),
        class_rows={y: sum(g.stat.rows for g in groups if g.y == y) for y in {g.y for g in groups}},
        accuracy=everything.accuracy,
    )


def operator_records(plan: Plan, metrics: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """Each operator with its parameters and metrics."""
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
