"""The recipe's section ``incremental``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from engine.section import Section


class DriftSection(Section):
    """When new rows are so different that operators must learn again. null: not looked at.

    Each threshold is for what is left of a distance after chance is taken off, and beyond chance it must be.
    """

    features: float | None = Field(default=0.15, ge=0, description="MMD of standardised features (0 to 1.41)")
    gradients: float | None = Field(default=0.15, ge=0, description="MMD of gradients (0 to 1.41)")
    shares: float | None = Field(
        default=0.1, ge=0, le=1, description="Total variation of the groups' shares, noise being one"
    )
    noise: float | None = Field(default=0.05, ge=0, le=1, description="Rise of the share of rows in no group")
    sample: int = Field(default=1000, ge=20, le=5000, description="Rows of each side that an MMD is taken of")


class IncrementalSection(Section):
    """Whether a run goes on from a published version; by default it depends on nothing but its input."""

    base: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Version to go on from: its name, or `current`; default: none, a full run",
    )
    mode: Literal["predict", "refit", "auto"] = Field(
        default="auto",
        description="What operators do with new rows. predict: place them by what the base has learnt; "
        "refit: learn again from all rows; auto: predict, unless there is drift",
    )
    keep: tuple[str, ...] = Field(
        default=("ingest", "embed", "probe", "gradients"),
        description="Operators whose state is kept when the others learn again",
    )
    drift: DriftSection = DriftSection()
