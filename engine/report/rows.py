"""Example rows: as pictures where they are images, else as a table of their fields."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.plan.model import Plan
from engine.report.fields import shown_fields
from engine.report.groups import GroupRow
from engine.report.pictures import sprite
from engine.report.survey import SMALL, Survey, gather
from engine.report.thumbnails import rows_per_request, thumbnails
from operators.base import GROUP, IS_OUTLIER, LABEL, LOSS, MARKED_BY, OUTLIER_SOURCE, PREDICTION, ROW_ID
from operators.counts import count
from operators.report import ExampleRows, ReportSection
from operators.report.text import number, percent, short
from operators.values import python_value

MAX_GROUPS = 24
MAX_EXAMPLES = 24
"""Rows of one list that an operator asks for."""


@dataclass(frozen=True)
class Request:
    """Rows to show under one title. ``slug`` becomes the CSS class of their picture."""

    slug: str
    title: str
    about: str
    row_ids: Sequence[int]
    one_class: bool = False
    """Whether all rows have the same label, which the title names."""


@dataclass(frozen=True)
class ShownRow:
    """One row, ready to print."""

    row_id: int
    label: str
    prediction: str
    wrong: bool
    loss: str
    why: str
    """The source of its mark, even if the final rule does not call it an outlier; or "noise"; or empty."""
    fields: list[str]


@dataclass(frozen=True)
class RowSample:
    """The rows of one request, ready to print. ``picture`` is a strip of all thumbnails."""

    slug: str
    """CSS class of the picture."""
    title: str
    about: str
    rows: list[ShownRow]
    one_class: bool
    picture: str = ""
    shape: tuple[int, int] = (1, 1)
    """Height and width of one thumbnail."""


@dataclass(frozen=True)
class RowSamples:
    """Example rows of the whole page. ``fields`` names the entries of each row's ``fields``."""

    groups: list[RowSample] = field(default_factory=list)
    """Groups and strongest outliers."""
    central: list[RowSample] = field(default_factory=list)
    """Rows nearest to the centres of the described groups."""
    sections: list[RowSample] = field(default_factory=list)
    """Rows that the operators' sections ask for, in the order of their requests."""
    fields: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def all(self) -> list[RowSample]:
        """All samples in the order of the page."""
        return [*self.groups, *self.central, *self.sections]


def sample_rows(
    plan: Plan,
    found: Survey,
    groups: list[GroupRow],
    classes: list[str],
    central: Sequence[ExampleRows],
    sections: Sequence[ReportSection],
) -> RowSamples:
    """Read and lay out all rows to show.

    Groups, and noise on which the classifier is clearly worse, come by rising accuracy; then the strongest
    outliers; then ``central``, the rows of described groups; then the rows that operators' sections ask for.
    """
    of_sections = [item for one in sections for item in one.content if isinstance(item, ExampleRows)]
    of_groups, notes = group_requests(found, groups)
    requests = [*of_groups, *_example_requests([*central, *of_sections])]
    fields, missing = shown_fields(plan, sections)
    limit = rows_per_request(plan, len(requests))
    wanted = [list(request.row_ids[:limit]) for request in requests]
    row_ids = np.unique(np.array([row_id for ids in wanted for row_id in ids], np.int64))
    if not len(row_ids):
        empty = [make_sample(request, [], [], None) for request in requests]
        return RowSamples(sections=empty[len(of_groups) + len(central) :], notes=[*notes, *missing])
    images, fault = thumbnails(plan, row_ids)
    if images is not None and plan.recipe.report.fields is None:
        fields = []  # an image says enough
    small = [name for name in SMALL if name in plan.reader().columns]
    table = gather(plan, row_ids, small, fields)
    shown = shown_rows(table, fields, classes)
    place = {row_id: i for i, row_id in enumerate(table.column(ROW_ID).to_pylist())}
    samples = iter(
        [
            make_sample(request, [place[row_id] for row_id in ids], shown, images)
            for request, ids in zip(requests, wanted, strict=True)
        ]
    )
    return RowSamples(
        groups=[*islice(samples, len(of_groups))],
        central=[*islice(samples, len(central))],
        sections=[*samples],
        fields=fields,
        notes=[*missing, *notes, *([fault] if fault else [])],
    )


def _example_requests(examples: Sequence[ExampleRows]) -> list[Request]:
    """Return a request for each list of example rows."""
    return [
        Request(f"example-{i}", one.title, one.caption, one.row_ids[:MAX_EXAMPLES])
        for i, one in enumerate(examples)
    ]


def group_requests(found: Survey, groups: list[GroupRow]) -> tuple[list[Request], list[str]]:
    """Return the groups and the strongest outliers to show, and notes on those that are left out."""
    inferred = sorted((g for g in groups if not g.is_noise or g.clearly_worse), key=by_accuracy)
    chosen, hidden = inferred[:MAX_GROUPS], inferred[MAX_GROUPS:]
    notes = []
    if hidden:
        scored = not math.isnan(hidden[0].stat.accuracy)
        which = ", on which the classifier is more accurate," if scored else ""
        are = "is" if len(hidden) == 1 else "are"
        notes.append(f"{count(len(hidden), 'more group')}{which} {are} not shown.")
    requests = [group_request(group, found.shown[group.y, group.group]) for group in chosen]
    strongest = found.strongest.tolist()
    if strongest:
        about = f"outliers, then noise, by falling loss; the first {len(strongest)}"
        requests.append(Request("strongest", "Strongest outliers", about, strongest))
    return requests, notes


def group_request(group: GroupRow, row_ids: NDArray[np.int64]) -> Request:
    """Ask for the rows of one group."""
    name = "Noise" if group.is_noise else f"Group {group.group}"
    about = f"{len(row_ids):,} of {count(group.stat.rows, 'row')}"
    if not math.isnan(group.stat.accuracy):
        about += f", accuracy {percent(group.stat.accuracy)}"
    kind = "noise" if group.is_noise else "group"
    slug = f"{kind}-{group.y}-{group.group}"  # a group of an oracle may lie in several classes
    return Request(slug, f"{name} of class {group.class_name}", about, row_ids.tolist(), one_class=True)


def by_accuracy(group: GroupRow) -> tuple[float, int]:
    """Sort key: rising accuracy, then size."""
    accuracy = group.stat.accuracy
    return 0.0 if math.isnan(accuracy) else accuracy, group.stat.rows


def make_sample(
    request: Request, places: list[int], shown: list[ShownRow], images: NDArray[np.float32] | None
) -> RowSample:
    """Lay out one request; ``places`` are the positions of its rows in ``shown`` and ``images``."""
    rows = [shown[place] for place in places]
    plain = RowSample(request.slug, request.title, request.about, rows, request.one_class)
    if images is None or not rows:
        return plain
    own = images[places]
    return replace(plain, picture=sprite(own), shape=(own.shape[1], own.shape[2]))


def shown_rows(table: pa.Table, fields: list[str], classes: list[str]) -> list[ShownRow]:
    """Format every row as text."""
    small = table.select([name for name in table.column_names if not name.startswith("source.")])
    columns = [table.column(f"source.{name}") for name in fields]
    rows = []
    for i, row in enumerate(small.to_pylist()):
        prediction, loss = row.get(PREDICTION), row.get(LOSS)
        noise = "noise" if (row[GROUP] or 0) < 0 else ""
        why = (row[OUTLIER_SOURCE] or "marked") if row[IS_OUTLIER] else row.get(MARKED_BY) or noise
        rows.append(
            ShownRow(
                row_id=row[ROW_ID],
                label="not valid" if row[LABEL] is None else short(classes[row[LABEL]], 24),
                prediction="" if prediction is None else short(classes[prediction], 24),
                wrong=prediction is not None and prediction != row[LABEL],
                loss="" if loss is None else number(loss, 2),
                why=why,
                fields=[short(python_value(column[i])) for column in columns],
            )
        )
    return rows
