"""Runs several methods of ``groups`` on one recipe; all they share is computed once."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.foundation.messages import nearest
from connectors.storage import Place
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.events import Listener, silent
from engine.core.json_files import write_json
from engine.plan.executor_choice import resolved_section
from engine.plan.model import Plan, PlannedOperator
from engine.plan.planner import make_plan
from engine.recipe.incremental import IncrementalSection
from engine.recipe.recipe import Recipe
from engine.recipe.yaml_text import apply_override
from engine.report.survey import cast_or_null
from engine.runs.compare.scores import Cell, Entry, floor_of, score
from engine.runs.operator_runner import OperatorRunner
from engine.storage.lease import hold_lease
from operators.base import GROUP, GROUP_OUTLIER, LABEL
from operators.parts.adaptor import NAME as PARTS

GROUPS = "groups"
FLOOR = "class label (floor)"


@dataclass(frozen=True)
class Comparison:
    """All entries, the floor first, and where they are written."""

    entries: tuple[Entry, ...]
    figure: Place
    record: Place

    def rows(self) -> list[dict[str, Any]]:
        """Return the entries as plain values; None for a score that is undefined."""
        rows = []
        for entry in self.entries:
            values = {"method": entry.method, **asdict(entry.scores), "seconds": entry.seconds}
            values["sizes"] = list(entry.scores.sizes)
            rows.append({k: None if isinstance(v, float) and math.isnan(v) else v for k, v in values.items()})
        return rows


def compare(
    recipe: Recipe,
    methods: Sequence[str],
    params: Sequence[str] = (),
    *,
    listener: Listener = silent,
    verbose: bool = False,
) -> Comparison:
    """Infer groups by each method and score them.

    Parameters
    ----------
    recipe
        Names the true groups under ``truth.group``, and the true outliers, if known, under
        ``truth.outlier``. Its own parameters of ``groups`` are used for its own method.
    methods
        Names under ``operators.groups.method``; ``oracle`` reads ``truth.group``.
    params
        ``METHOD.KEY=VALUE``, parameters of one method.

    Returns
    -------
    Comparison; ``<output>/compare/<digest>.json`` and ``.png`` hold the same. Nothing is published.

    Raises
    ------
    RowsieveError : no truth named, an unknown method or parameter, or what a run raises.
    """
    if recipe.truth.group is None:
        raise InputError(
            f"{recipe.name}: methods are compared against true groups, and the recipe names none. Name the "
            "column that holds them, for example with --set truth.group=COLUMN; no method may read it."
        )
    if not methods:
        raise InputError("--methods names no method. Leave it out, or give some, such as grasp,kmeans.")
    plans = {method: make_plan(variant) for method, variant in variants(recipe, methods, params).items()}
    first = next(iter(plans.values()))
    entries: list[Entry] = []
    with hold_lease(first.output, recipe.name) as lease, ExitStack() as stack:
        runner = OperatorRunner(resolved_section(first), listener, stack, lease, verbose=verbose)
        for method, plan in plans.items():
            for planned in needed(plan):
                runner.run(plan, planned)
            counts = count_rows(plan)
            if not entries:
                entries.append(Entry(FLOOR, floor_of(counts), 0.0))
            entries.append(Entry(method, score(counts), seconds_of(plan)))
        return _written(tuple(entries), plans, recipe)


def variants(recipe: Recipe, methods: Sequence[str], params: Sequence[str] = ()) -> dict[str, Recipe]:
    """Return the recipe with each method, by the method's name.

    Raises InputError for a parameter of another method.
    """
    own = dict(recipe.operators.get(GROUPS, {}))
    chosen: dict[str, Any] = {method: {"method": method} for method in methods}
    if str(own.get("method", "grasp")) in chosen:
        chosen[str(own.get("method", "grasp"))] |= own
    if "oracle" in chosen:
        chosen["oracle"] = {"column": recipe.truth.group} | chosen["oracle"]
    for override in params:
        method = override.partition(".")[0]
        if method not in chosen or "." not in override.partition("=")[0]:
            raise InputError(
                f"--param {override}: write it as METHOD.KEY=VALUE with a method that is compared "
                f"({', '.join(chosen)}).{nearest(method, chosen)}"
            )
        apply_override(chosen, override)
    return {
        method: recipe.model_copy(
            # Every method is fitted from the start, also if a run would continue from a base version.
            update={
                "operators": {**recipe.operators, GROUPS: values},
                "incremental": IncrementalSection(),
                "source": recipe.source.model_copy(update={"holdout": None}),
            }
        )
        for method, values in chosen.items()
    }


def needed(plan: Plan) -> list[PlannedOperator]:
    """Return ``groups`` and the operators it reads from, directly or not, in the order of the plan."""
    names, columns = {GROUPS, "ingest", PARTS}, set[str]()
    kept: list[PlannedOperator] = []
    for planned in reversed(plan.operators):
        operator = planned.operator
        if planned.name in names or columns.intersection(field.name for field in operator.adds):
            kept.append(planned)
            names.update(operator.uses)
            columns.update(operator.requires)
    return kept[::-1]


def count_rows(plan: Plan) -> Counter[Cell]:
    """Count the valid rows that have a true group, shard by shard. Raises InputError if there are none."""
    reader, truth = plan.reader(), plan.recipe.truth
    counts: Counter[Cell] = Counter()
    for info in plan.shards:
        table = reader.read_all(info.index, [LABEL, GROUP, GROUP_OUTLIER])
        source = reader.read_with_truth(info.index, list(truth.columns))
        names = cast_or_null(source.column(truth.group), pa.string())
        known: Any = pa.nulls(table.num_rows, pa.bool_())
        if truth.outlier is not None:
            known = cast_or_null(source.column(truth.outlier), pa.bool_())
        marked = pc.not_equal(table.column(GROUP_OUTLIER).cast(pa.string()), "")
        values = [table.column(LABEL), table.column(GROUP), marked, names, known]
        cells = pa.table(dict(zip(Cell._fields, values, strict=True)))
        cells = cells.filter(pc.and_(pc.is_valid(cells["y"]), pc.is_valid(cells["true_group"])))
        grouped = cells.group_by(list(Cell._fields), use_threads=False).aggregate([([], "count_all")])
        for row in grouped.to_pylist():
            counts[Cell(*(row[name] for name in Cell._fields))] += row["count_all"]
    if not counts:
        raise InputError(
            f"truth.group: no valid row has a value in the column {truth.group!r} that can be read as text, "
            "so there is nothing to compare with. Name the column with the true group of each row."
        )
    return counts


def seconds_of(plan: Plan) -> float:
    """Return the recorded seconds of fitting ``groups`` plus those of applying it to all shards."""
    fingerprint = plan.fingerprint_of(GROUPS)
    fitted = plan.store.fitted(fingerprint) or {"seconds": 0.0}
    applied = sum(commit.seconds for commit in plan.store.committed(fingerprint).values())
    return float(fitted["seconds"]) + applied


def _written(entries: tuple[Entry, ...], plans: dict[str, Plan], recipe: Recipe) -> Comparison:
    # Not at the top: matplotlib takes a second to import.
    from engine.runs.compare.figure import draw

    prints = [plan.fingerprint_of(GROUPS) for plan in plans.values()]
    name = digest([prints, recipe.truth.columns])[:12]
    path = next(iter(plans.values())).output / "compare" / f"{name}.json"
    found = Comparison(entries, path.with_suffix(".png"), path)
    write_json(path, {"recipe": recipe.name, "methods": found.rows()})
    draw(entries, recipe.report.title or recipe.name, found.figure)
    return found
