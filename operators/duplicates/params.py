"""Parameters of the ``duplicates`` operator."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from operators.base import DUPLICATE_OF, FACTOR, Operator, OperatorParams, Resources


class DuplicatesParams(OperatorParams):
    """Parameters of ``duplicates``: which rows are near duplicates, and what becomes of them."""

    columns: tuple[str, ...] = ()
    """Source columns of texts that are compared, joined by spaces. Without any, the feature vectors are
    compared. That has a meaning for vectors of a network (`embed`, or a source column of vectors). Features
    that `encode` makes of numbers and categories need a `distance` of your own, since most of their rows
    point in nearly the same directions."""
    threshold: Annotated[float, Field(ge=0.3, le=1.0)] = 0.8
    """Jaccard similarity of two texts' shingles from which on they are near duplicates. It is estimated from
    128 hashes, with a standard error of at most 0.044. Unused for vectors."""
    shingle: Annotated[int, Field(ge=1, le=100)] = 8
    """Characters of a shingle, spaces included. A text with fewer is one shingle. Unused for vectors."""
    distance: Annotated[float, Field(ge=0, le=2)] = 0.001
    """Distance (1 - cos) of two vectors up to which they are near duplicates; 0.001 is an angle of 2.6
    degrees. Unused for texts."""
    weight: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Factor of the sample weight of a row that duplicates an older one: 0 keeps one row of each, 1 marks
    rows alone. Below 1 `split` also drops rows that are near an older one in another split, so that no
    validation or test row is near a training row; at 1 they stay, and a warning counts them."""
    resources: Resources = Resources()
    """Resources of each worker."""

    @model_validator(mode="after")
    def _one_kind(self) -> DuplicatesParams:
        given = self.model_fields_set
        for name in ("threshold", "shingle") if not self.columns else ("distance",):
            if name in given:
                kind = "vectors are" if not self.columns else "texts (columns) are"
                raise ValueError(f"{name} has no meaning where {kind} compared; leave it out")
        return self


def weighs_copies(operator: Operator[Any]) -> bool:
    """Return whether an operator of a chain names near duplicates of older rows and adds a weight for them.

    `split` and `weights` then keep such rows out too.
    """
    return {DUPLICATE_OF, operator.name + FACTOR} <= {field.name for field in operator.adds}


MANY = 0.5
"""Share of duplicates from which on the limit is more likely wrong than the rows are duplicates."""


def too_many(params: DuplicatesParams, duplicates: int, compared: int) -> str:
    """Return a warning with its remedy where more than ``MANY`` of the rows are duplicates; else nothing."""
    if duplicates <= MANY * compared:
        return ""
    limit = "raise the threshold" if params.columns else f"lower the distance ({params.distance:g})"
    what = f"their weight is multiplied by {params.weight:g}" if params.weight < 1 else "they are marked"
    return (
        f"{duplicates:,} of {compared:,} rows count as near duplicates of an older row, and {what}. Unless "
        f"the source repeats its rows, {limit}, or compare other columns. Set weight: 1 until the pairs in "
        "the report are duplicates in your eyes."
    )
