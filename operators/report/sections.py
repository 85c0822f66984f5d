"""Plain data of which a section of the report consists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from operators.arrays import Float64

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Severity: TypeAlias = Literal["information", "warning"]
Cell: TypeAlias = str | int | float | None
SOURCE_COLUMN = "source column"
"""First head of a table that lists source columns, the most important first. Example rows show these first,
after the columns that :class:`RecipeChoices` ask about."""


SMALL_CLASSES = "small classes"
"""Subject of the findings that a class has few rows."""


@dataclass(frozen=True)
class Finding:
    """One sentence for the summary at the head of the report; warnings are shown in a box."""

    text: str
    severity: Severity = "information"
    subject: str = ""
    """What several operators may find. The page shows the first finding of each subject in the order of its
    sections; findings without one are all shown."""


@dataclass(frozen=True)
class Notice:
    """A paragraph in a box, for something that the reader has to act on."""

    text: str


@dataclass(frozen=True)
class ReportTable:
    """A table. Numbers are right-aligned and formatted by the report; None is shown as a dash."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


@dataclass(frozen=True)
class ReportFigure:
    """A figure. The report renders a matplotlib figure to PNG and embeds it in the page."""

    image: Figure | bytes
    """A matplotlib figure, or the bytes of a PNG file."""
    description: str
    """Text for readers who cannot see the figure."""
    title: str = ""
    caption: str = ""


@dataclass(frozen=True)
class ExampleRows:
    """Rows that the report shows as it shows the rows of a group: as pictures, or with their fields."""

    title: str
    row_ids: Sequence[int]
    """At most 24 are shown, in this order."""
    caption: str = ""


@dataclass(frozen=True)
class PointMap:
    """Some rows of one class as points of a plane.

    The report colours the points by group, and draws the maps of one class side by side.
    """

    title: str
    y: int
    """Index of the class."""
    row_ids: NDArray[np.int64]
    """(n,) rows of :meth:`operators.base.ReportContext.sample`."""
    points: Float64
    """(n, 2)"""
    axes: tuple[str, str] = ("component 1", "component 2")


@dataclass(frozen=True)
class RecipeChoice:
    """One item of :class:`RecipeChoices`."""

    label: str
    """Text for the reader."""
    value: str
    """The item as the recipe writes it within a YAML list."""
    chosen: str = ""
    """The option under which the recipe names the item today; empty if under none."""


@dataclass(frozen=True)
class RecipeChoices:
    """Items for which the reader chooses an option by buttons.

    The page composes the recipe section to copy.
    """

    section: tuple[str, ...]
    """Keys that lead to the section, such as ``("operators", "cues")``."""
    options: tuple[str, ...]
    """Keys of the section, each of which holds a list of items."""
    items: Sequence[RecipeChoice]


Content: TypeAlias = str | Notice | ReportTable | ReportFigure | ExampleRows | RecipeChoices


@dataclass(frozen=True)
class ReportSection:
    """One operator's contribution to the report: text, tables, findings and maps of points."""

    title: str
    content: Sequence[Content] = ()
    """Shown in this order. A text is a paragraph; without any content the section is left out."""
    findings: Sequence[Finding] = ()
    point_maps: Sequence[PointMap] = ()
    order: int = 50
    """Sections with a lower number come first; equal ones stand in the order of the recipe."""


@dataclass(frozen=True)
class RowLocation:
    """Position of a row in the source."""

    row_id: int
    path: str
    row: int
    """Position within the file, from 0."""
