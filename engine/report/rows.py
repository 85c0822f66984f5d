"""The rows themselves: thumbnails where the recipe says how to draw one, else their fields."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from engine.core.suggestions import nearest
from engine.plan.model import Plan
from engine.report.groups import GroupRow
from engine.report.pictures import sprite
from engine.report.sampling import gather
from engine.report.survey import SMALL, Survey
from engine.report.thumbnails import rows_at_most, thumbnails
from engine.report.words import count, number, percent, short
from operators.base import GROUP, IS_OUTLIER, LABEL, LOSS, MARKED_BY, OUTLIER_SOURCE, PREDICTION, ROW_ID

MOST_GROUPS = 24
OUTLIERS, CONTESTED = "outliers", "contested"
MOST_FIELDS = 8
NESTED = (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary)


@dataclass(frozen=True)
class Shown:
    """One row, ready to print."""

    row_id: int
    label: str
    prediction: str
    wrong: bool
    loss: str
    group: int
    why: str
    """What marks it, whether or not it is judged an outlier; or "noise"; empty for neither."""
    fields: list[str]


@dataclass(frozen=True)
class Album:
    """The shown rows of one group, or the strongest outliers. ``picture`` is a strip of all thumbnails."""

    slug: str
    """Name of its picture in the style sheet."""
    title: str
    about: str
    rows: list[Shown]
    one_class: bool
    """All rows have the same label, and the title names it."""
    picture: str = ""
    shape: tuple[int, int] = (1, 1)
    """Height and width of one thumbnail."""


@dataclass(frozen=True)
class Gallery:
    """Everything of the section. ``fields`` names the entries of each row's ``fields``."""

    albums: list[Album] = field(default_factory=list)
    fields: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def gallery(plan: Plan, found: Survey, groups: list[GroupRow], classes: list[str]) -> Gallery:
    """Read and lay out the rows to show.

    Groups, and noise on which the probe is clearly worse, by rising accuracy; then the strongest outliers.
    """
    inferred = sorted((g for g in groups if not g.is_noise or g.clearly_worse), key=by_accuracy)
    chosen, hidden = inferred[:MOST_GROUPS], inferred[MOST_GROUPS:]
    fields, notes = shown_fields(plan)
    if hidden:
        notes.append(f"{count(len(hidden), 'more group')}, on which the probe does better, are not shown.")
    limit = rows_at_most(plan.recipe.report.image, len(chosen) + 1)
    wanted = [found.shown[group.y, group.group][:limit] for group in chosen]
    strongest, differing = found.strongest[:limit], found.contested[:limit]
    ids = np.concatenate([*wanted, strongest, differing])
    if not len(ids):
        return Gallery(notes=notes)
    table, pictures, note = read_rows(plan, ids, fields)
    if pictures is not None and plan.recipe.report.fields is None:
        fields = []  # a picture says enough
    shown = shown_rows(table, fields, classes)
    place = {row_id: i for i, row_id in enumerate(table.column(ROW_ID).to_pylist())}

    def album(slug: str, title: str, about: str, row_ids: NDArray[np.int64]) -> Album:
        places = [place[row_id] for row_id in row_ids.tolist()]
        plain = Album(slug, title, about, [shown[i] for i in places], slug not in (OUTLIERS, CONTESTED))
        if pictures is None:
            return plain
        own = pictures[places]
        return replace(plain, picture=sprite(own), shape=(own.shape[1], own.shape[2]))

    albums = [
        album(
            f"noise-{g.y}" if g.is_noise else f"group-{g.group}",
            f"Noise of class {g.class_name}" if g.is_noise else f"Group {g.group} of class {g.class_name}",
            f"{len(ids):,} of {count(g.stat.rows, 'row')}, {percent(g.stat.accuracy)} right",
            ids,
        )
        for g, ids in zip(chosen, wanted, strict=True)
    ]
    if len(strongest):
        about = f"marked rows, then noise, by falling loss; the first {len(strongest)}"
        albums.append(album(OUTLIERS, "Strongest outliers", about, strongest))
    if len(differing):
        about = f"some operators mark them, others do not; by falling loss; the first {len(differing)}"
        albums.append(album(CONTESTED, "Contested rows", about, differing))
    return Gallery(albums, fields, [*notes, *([note] if note else [])])


def by_accuracy(group: GroupRow) -> tuple[float, int]:
    """Sort key: rising accuracy (none known: by size alone)."""
    accuracy = group.stat.accuracy
    return 0.0 if math.isnan(accuracy) else accuracy, group.stat.rows


def read_rows(
    plan: Plan, row_ids: NDArray[np.int64], fields: list[str]
) -> tuple[pa.Table, NDArray[np.float32] | None, str]:
    """Sidecar and source columns of some rows, in row order; their pictures, or what is wrong with them."""
    image = plan.recipe.report.image
    names = [*fields, image.column] if image and image.column in plan.listing.schema.names else fields
    small = [name for name in SMALL if name in plan.reader().columns]
    table = gather(plan, row_ids, small, list(dict.fromkeys(names)))
    return table, *(thumbnails(table, image) if image else (None, ""))


def shown_fields(plan: Plan) -> tuple[list[str], list[str]]:
    """Source columns to show beside the label, and notes on those that are named but not there."""
    schema, report, label = plan.listing.schema, plan.recipe.report, plan.recipe.source.label
    if report.fields is not None:
        missing = [name for name in report.fields if name not in schema.names]
        notes = [
            f"report.fields: the source has no column {name!r}.{nearest(name, schema.names)}"
            for name in missing
        ]
        return [name for name in report.fields if name not in missing and name != label], notes
    apart = {label, *plan.recipe.truth.columns}
    names = [f.name for f in schema if f.name not in apart]
    scalar = [name for name in names if not any(test(schema.field(name).type) for test in NESTED)]
    return (scalar or names)[:MOST_FIELDS], []


def shown_rows(table: pa.Table, fields: list[str], classes: list[str]) -> list[Shown]:
    """Every row as text."""
    small = table.select([name for name in table.column_names if not name.startswith("source.")])
    columns = [table.column(f"source.{name}") for name in fields]
    rows = []
    for i, row in enumerate(small.to_pylist()):
        prediction, loss = row.get(PREDICTION), row.get(LOSS)
        noise = "noise" if row[GROUP] < 0 else ""
        why = (row[OUTLIER_SOURCE] or "marked") if row[IS_OUTLIER] else row.get(MARKED_BY) or noise
        rows.append(
            Shown(
                row_id=row[ROW_ID],
                label=short(classes[row[LABEL]], 24),
                prediction="" if prediction is None else short(classes[prediction], 24),
                wrong=prediction is not None and prediction != row[LABEL],
                loss="" if loss is None else number(loss, 2),
                group=row[GROUP],
                why=why,
                fields=[short(column[i].as_py()) for column in columns],
            )
        )
    return rows
