"""Options of CSV sources."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from connectors.base import SourceOptions


class CsvOptions(SourceOptions):
    """Options of a source in the format ``csv``."""

    delimiter: str | None = Field(
        default=None,
        pattern=r"^[!#-/:-@\[-`{-~\t]$",
        description="One character between fields; default: a tab in .tsv files, else a comma",
    )
    duplicate_names: Literal["error", "number"] = Field(
        default="error",
        description="number: a second column `x` becomes `x.1`, a third `x.2`. Those that `source.rename` "
        "names so are accepted without it",
    )
    empty_names: Literal["error", "number"] = Field(
        default="error",
        description="number: a column that the header gives no name, such as the index that pandas writes, "
        "becomes `column_1`, by its place",
    )
    header: bool = Field(default=True, description="false: the first line is a row, not the names of columns")
    column_names: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Names of the columns, in place of those in the header; default without a header: "
        "`column_1`, `column_2`, ...",
    )
    decimal: Literal[".", ","] = Field(default=".", description="Decimal point of numbers")
    thousands: Literal[",", ".", " ", "'", "_"] | None = Field(
        default=None, description="What stands between groups of three digits, as in `1,234,567`"
    )

    @model_validator(mode="after")
    def _distinct_marks(self) -> CsvOptions:
        if self.decimal == self.thousands:
            raise ValueError("decimal and thousands are the same character")
        return self
