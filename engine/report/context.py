"""Sections that the recipe's operators contribute, and the data they are made from."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from engine.core.json_files import read_key
from engine.plan.model import Plan, PlannedOperator
from engine.report.scores import agreement_with_truth
from engine.report.survey import Key, Survey, gather
from operators.base import GROUP, LABEL, Executor, Labelings, ReportContext, ShardReader
from operators.columns import vectors_to_numpy
from operators.report import (
    Content,
    ExampleRows,
    Notice,
    ReportFigure,
    ReportSection,
    ReportTable,
    RowLocation,
    RowStatistics,
)

SAMPLED_ROWS = 4_000
SAMPLED_VALUES = 2**25
"""A sample holds at most this many numbers of one vector column (128 MiB)."""
HIDDEN = ("true_group", "true_outlier")
_log = logging.getLogger("rowsieve")


@dataclass(frozen=True)
class PlanContext:
    """Implements ``operators.base.ReportContext`` over a plan and its survey."""

    plan: Plan
    planned: PlannedOperator
    survey: Survey
    classes: Sequence[str]
    metrics: Mapping[str, float]
    executor: Executor

    @property
    def state(self) -> Path:
        """State folder of the operator."""
        return self.plan.store.state(self.planned.fingerprint)

    @property
    def seed(self) -> int:
        """Return the seed of the recipe."""
        return self.plan.recipe.seed

    @property
    def shards(self) -> ShardReader:
        """Reader that refuses truth columns."""
        return self.plan.reader()

    @property
    def columns(self) -> Collection[str]:
        """Columns that the recipe's operators add."""
        return self.plan.reader().columns

    def counts(self, *columns: str) -> Mapping[tuple[Any, ...], RowStatistics]:
        """Add up the survey's cells. Raises ValueError for a column that is not counted."""
        known = [name for name in Key._fields if name not in HIDDEN]
        unknown = set(columns).difference(known)
        if unknown:
            raise ValueError(f"rows are not counted by {sorted(unknown)[0]!r}, only by {', '.join(known)}")
        return self.survey.total(lambda key: tuple(getattr(key, name) for name in columns))

    def sample(self, columns: Sequence[str]) -> pa.Table:
        """Read the rows that the survey drew, fewer of them where a vector column is wide."""
        known = [name for name in columns if name in self.columns]
        names = list(dict.fromkeys([LABEL, GROUP, *known]))
        drawn = self.survey.drawn
        if not len(drawn):
            return pa.table({name: [] for name in ("row_id", *names, "represents")})
        width = _width(gather(self.plan, drawn[:1], names, []))
        table = gather(self.plan, drawn[: min(SAMPLED_ROWS, SAMPLED_VALUES // width)], names, [])
        return table.append_column("represents", pa.array(self._represented(table)))

    def _represented(self, table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return for each sampled row the number of rows of its class and group that it stands for."""
        sizes = self.counts(LABEL, GROUP)
        pairs = list(zip(table.column(LABEL).to_pylist(), table.column(GROUP).to_pylist(), strict=True))
        sampled: dict[tuple[int, int], int] = {}
        for pair in pairs:
            sampled[pair] = sampled.get(pair, 0) + 1
        return np.array([sizes[pair].rows / sampled[pair] for pair in pairs], np.float64)

    def locate(self, row_ids: Sequence[int]) -> list[RowLocation]:
        """Look the rows up in the plan's shards."""
        shards = sorted((info for info in self.plan.shards if info.n_rows), key=lambda info: info.first_row)
        firsts = [info.first_row for info in shards]
        found = []
        for row_id in row_ids:
            info = shards[bisect_right(firsts, row_id) - 1]
            (row,) = self.plan.reader().file_rows(info.index, [row_id - info.first_row])
            found.append(RowLocation(row_id, info.path, row))
        return found

    def agreement_with_truth(self, labelings: Labelings) -> Mapping[tuple[int, Hashable], float]:
        """Score labelings without showing the truth to the operator."""
        return agreement_with_truth(self.plan, self.survey, labelings)


def _width(table: pa.Table) -> int:
    """Return the length of the widest vector column of one row."""
    lists = [column for column in table.columns if pa.types.is_list(column.type)]
    return max((int(vectors_to_numpy(column).shape[1]) for column in lists), default=1) or 1


def read_classes(plan: Plan) -> list[str]:
    """Read the names of the classes, in the order in which ``y`` counts them.

    The operator that adds ``y`` keeps them in ``classes.json`` in its state folder.
    """
    path = plan.store.state(plan.fingerprint_of(plan_operator(plan, LABEL).name)) / "classes.json"
    return [str(name) for name in read_key(path, "classes", list)]


def plan_operator(plan: Plan, column: str) -> PlannedOperator:
    """Return the operator that adds a column. Raises KeyError."""
    makers = {field.name: planned for planned in plan.operators for field in planned.operator.adds}
    return makers[column]


def operator_sections(
    plan: Plan,
    found: Survey,
    classes: Sequence[str],
    metrics: Mapping[str, Mapping[str, float]],
    executor: Executor,
) -> list[tuple[str, ReportSection]]:
    """Ask every operator for its section; return operator names and sections in the order of the page."""
    sections = []
    for planned in plan.operators:
        own = metrics.get(planned.name, {})
        context = PlanContext(plan, planned, found, classes, own, executor)
        section = _section_of(planned, context)
        if section is not None:
            sections.append((planned.name, section))
    return sorted(sections, key=lambda pair: pair[1].order)


def checked(section: ReportSection, context: ReportContext) -> ReportSection:
    """Return the section with every figure rendered to PNG. Raises ValueError for wrong content."""
    n_rows = sum(info.n_rows for info in context.shards.shards)
    content: list[Content] = []
    for item in section.content:
        if isinstance(item, ReportFigure) and not isinstance(item.image, bytes):
            from engine.report.pictures import png_bytes

            item = replace(item, image=png_bytes(item.image))
        elif isinstance(item, ReportTable):
            wrong = [row for row in item.rows if len(row) != len(item.columns)]
            if wrong:
                raise ValueError(f"a table of {len(item.columns)} columns has a row of {len(wrong[0])} cells")
        elif isinstance(item, ExampleRows):
            _check_rows(item.row_ids, n_rows)
        content.append(item)
    for one in section.point_maps:
        _check_rows(one.row_ids, n_rows)
        if one.points.shape != (len(one.row_ids), 2):
            raise ValueError(f"a point map of {len(one.row_ids)} rows has points of shape {one.points.shape}")
    return replace(section, content=content)


def _check_rows(row_ids: Iterable[int], n_rows: int) -> None:
    wrong = [row_id for row_id in row_ids if not 0 <= row_id < n_rows]
    if wrong:
        raise ValueError(f"there is no row {wrong[0]}; rows are 0 to {n_rows - 1}")


def _section_of(planned: PlannedOperator, context: ReportContext) -> ReportSection | None:
    """Return an operator's section; an error becomes a notice, since a report never ends a run."""
    try:
        section = planned.operator.report_section(context)
        return None if section is None else checked(section, context)
    except Exception as error:
        _log.warning("The operator %s could not describe itself to the report: %s", planned.name, error)
        _log.debug("report_section of %s failed", planned.name, exc_info=True)
        text = f"This section could not be made: {type(error).__name__}: {error}"
        return ReportSection(f"Operator {planned.name}", [Notice(text)])
