"""The form of ``reports/<version>.groups.json``, which is checked when the file is read.

The file lies in an output that may be shared. Command line, report, MLflow and API use the values below, so a
file without them must end in one error that names the file, wherever it is read.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field, ValidationError


class _Rule(BaseModel):
    coverage: float
    purity: float
    base: float
    lift: float
    checked: int


class _Term(BaseModel):
    column: str
    term: str
    in_group: float
    in_rest_of_class: float


class _Group(BaseModel):
    name: str = Field(alias="class")
    group: int
    rows: int
    share: float
    accuracy: float | None
    description: str
    rule: _Rule | None
    terms: list[_Term]
    central_rows: list[int]


class _Slice(BaseModel):
    name: str = Field(alias="slice")
    also: list[str]
    description: str


class _Descriptions(BaseModel):
    version: str
    groups: list[_Group]
    slices: list[_Slice]


def fault_of(found: dict[str, Any]) -> str | None:
    """Return the first fault of descriptions, with its place; None if they have the form of this release."""
    try:
        _Descriptions.model_validate(found, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(map(str, first['loc']))[:100]}: {first['msg']}"
    return None
