"""The section that an operator contributes to the report, as plain data.

:meth:`operators.base.Operator.report_section` returns a :class:`ReportSection`. Operators of other packages
use the same types. All texts are plain text: the report escapes them. Importing this package imports
neither matplotlib nor the engine; :mod:`operators.report.figures` helps to draw figures.
"""

from operators.report.sections import (
    SMALL_CLASSES,
    SOURCE_COLUMN,
    Cell,
    Content,
    ExampleRows,
    Finding,
    Notice,
    PointMap,
    RecipeChoice,
    RecipeChoices,
    ReportFigure,
    ReportSection,
    ReportTable,
    RowLocation,
    Severity,
)
from operators.report.statistics import RowStatistics

__all__ = [
    "SMALL_CLASSES",
    "SOURCE_COLUMN",
    "Cell",
    "Content",
    "ExampleRows",
    "Finding",
    "Notice",
    "PointMap",
    "RecipeChoice",
    "RecipeChoices",
    "ReportFigure",
    "ReportSection",
    "ReportTable",
    "RowLocation",
    "RowStatistics",
    "Severity",
]
