"""The operator's section of the report: estimates of the verdict, and the marks of other operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from connectors.foundation.messages import first_of
from operators.arrays import Float64
from operators.base import IS_OUTLIER, LOSS, MARKED_BY, ROW_ID, ReportContext, ShardReader
from operators.bounded_json import read_json
from operators.counts import count
from operators.outliers.state import unchecked_classes
from operators.outliers.votes import ALL, ANY, BETWEEN
from operators.report import (
    Cell,
    Content,
    ExampleRows,
    Finding,
    ReportSection,
    ReportTable,
    RowStatistics,
)
from operators.report.statistics import first_rows
from operators.report.text import interval, percent, short

SHOWN = 24
MAX_NAMED, MAX_NAME = 5, 40
"""Classes that a sentence names, and the characters of each name."""
NOT_COVERED = (
    "Not covered: labels that are wrong in the direction of a shortcut, and damage that leaves a row near "
    "its neighbours and consistent with its label. The estimated recall is therefore an upper bound."
)
WITHOUT_SHORTCUTS = (
    "A row is marked only if it looks corrupt without the shortcuts that `cues` balances, too: a row that "
    "merely breaks one is rare, not wrong."
)
UNCHECKED = ", whose rows the features do not tell from those of other classes well enough."
Rows = Float64


def vote_section(context: ReportContext, voters: Sequence[str], rule: str) -> ReportSection | None:
    """Tabulate the rows by the operators that mark them; None if only one operator marks rows."""
    if len(voters) < 2:
        return None
    stats = {str(by or ""): stat for (by,), stat in context.counts(MARKED_BY).items()}
    assessed = context.counts(MARKED_BY, IS_OUTLIER)
    outliers = {str(by or ""): stat.rows for (by, outlier), stat in assessed.items() if outlier}
    disputed = sum(stat.rows for by, stat in stats.items() if 0 < _votes(by) < len(voters))
    total = sum(stat.rows for stat in stats.values())
    names = sorted(stats, key=lambda by: (-_votes(by), by))
    table = ReportTable(
        ("marked by", "rows", "share", "accuracy", "95\u00a0% interval", "outliers"),
        [_row(by, stats[by], outliers.get(by, 0), total) for by in names],
        "Rows by the operators that mark them. A row that only one operator marks may be rare rather than "
        "corrupt.",
    )
    content: list[Content] = [table]
    if disputed:
        shown = disputed_rows(context, len(voters))
        caption = f"some operators mark them and others do not; by falling loss; the first {len(shown)}"
        content.append(ExampleRows("Disputed rows", shown, caption))
    finding = Finding(_sentence(disputed, sum(outliers.values()), rule))
    return ReportSection("Which operators mark outliers", content, [finding], order=10)


def evidence_section(
    state: Path, kinds: Mapping[str, str], classes: Sequence[str], votes: ReportSection | None
) -> ReportSection:
    """State what the verdict by evidence is estimated to find, and what it cannot find.

    Parameters
    ----------
    state : the operator's state folder, with ``evidence.json``.
    kinds : kind of planted damage to its name in the table.
    classes : name of each class.
    votes : the section on the marks of other operators, whose content follows; None if there is none.
    """
    record = read_json(state / "evidence.json")
    title, order = "Corrupt rows", 10
    others = votes.content if votes else ()
    if record["reason"]:
        text = f"No row is marked as an outlier: {record['reason']}."
        return ReportSection(title, [text, *others], [Finding(text)], order=order)
    found = record["estimates"]
    prevalence, recall = found["prevalence"], found["planted_recall"]
    table = ReportTable(
        ["kind", "estimated share of rows", "share of planted rows that would be marked"],
        [(kinds[kind], share, recall[kind]) for kind, share in prevalence.items()],
        f"From {found['n_rows']:,} sampled rows; damage was planted in {found['n_planted']:,} of them to "
        "calibrate the verdict.",
    )
    text = "No kind of damage is common and distinct enough to mark rows."
    if found["precision"] is not None:
        text = (
            f"An estimated {found['precision']:.0%} of the rows marked as outliers are corrupt, and at "
            f"most {found['recall']:.0%} of the corrupt rows are marked."
        )
    unchecked = [short(classes[index], MAX_NAME) for index in unchecked_classes(state)]
    if unchecked:
        named = f"{count(len(unchecked), 'class')} ({first_of(unchecked, MAX_NAMED)})"
        text += f" Wrong labels are not looked for in {named}{UNCHECKED}"
    if record["shortcut_free"]:
        text += f" {WITHOUT_SHORTCUTS}"
    content: list[Content] = [f"{text} {NOT_COVERED}", table, *others]
    return ReportSection(title, content, [Finding(text)], order=order)


def disputed_rows(context: ReportContext, n_voters: int) -> list[int]:
    """Find the rows on which the operators disagree: outliers by the rule first, then by falling loss."""
    reader = context.shards
    columns = [name for name in (MARKED_BY, IS_OUTLIER, LOSS) if name in context.columns]
    work = partial(_disputed, reader, columns, n_voters)
    kept = np.empty((0, 3))
    for found in context.executor.map(work, range(len(reader.shards))):
        kept = first_rows(np.concatenate([kept, found]), SHOWN)
    return [int(row_id) for row_id in kept[:, 2]]


def _disputed(reader: ShardReader, columns: Sequence[str], n_voters: int, shard: int) -> Rows:
    """Return whether an outlier, loss and row id, (m, 3), of one shard's first disputed rows."""
    table = reader.read(shard, columns)
    votes = np.array([_votes(by or "") for by in table.column(MARKED_BY).to_pylist()], np.int64)
    loss = np.zeros(table.num_rows)
    if LOSS in columns:
        loss = np.nan_to_num(table.column(LOSS).to_numpy(), nan=0.0)
    rows = np.column_stack([table.column(IS_OUTLIER).to_numpy(), loss, table.column(ROW_ID).to_numpy()])
    return first_rows(np.asarray(rows[(votes > 0) & (votes < n_voters)], np.float64), SHOWN)


def _row(by: str, stat: RowStatistics, outliers: int, total: int) -> tuple[Cell, ...]:
    """Make one row of the table."""
    name = by.replace(BETWEEN, " and ") or "no operator"
    share = percent(stat.rows / max(total, 1))
    return name, stat.rows, share, percent(stat.accuracy), interval(stat.interval), outliers


def _sentence(disputed: int, outliers: int, rule: str) -> str:
    """Say how many rows are disputed, and what the rule makes of them."""
    decides = {ALL: "all operators must agree", ANY: "one operator is enough"}.get(rule, f"{rule} decides")
    are = "is an outlier" if outliers == 1 else "are outliers"
    return (
        f"The operators that mark outliers disagree on {count(disputed, 'row')}. By the recipe's rule "
        f"({decides}), {count(outliers, 'row')} {are}."
    )


def _votes(by: str) -> int:
    """Count the operators in a value of ``marked_by``."""
    return len(by.split(BETWEEN)) if by else 0
