"""Parameters of the ``outliers`` operator."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from operators.base import OperatorParams, Resources
from operators.outliers.votes import ALL, ANY

EVIDENCE = "evidence"


class EvidenceParams(OperatorParams):
    """The calibrated verdict: which rows are probably corrupt."""

    max_rows: int = Field(default=50_000, ge=100, le=50_000)
    """Rows of the sample that the verdict is learnt from; fewer where they have more than 400 features."""
    min_precision: float = Field(default=0.7, gt=0, lt=1)
    """Bound on the estimated share of corrupt rows among the marked ones."""
    min_posterior: float = Field(default=0.5, gt=0, lt=1)
    """Rows that are corrupt with a smaller probability are not marked."""
    min_prevalence: float = Field(default=0.0015, ge=0, lt=1)
    """A kind of damage that is estimated to be rarer is not marked."""


class OutliersParams(OperatorParams):
    """How rows are marked as corrupt."""

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources"})

    rule: str | None = Field(
        default=None,
        description=f"{EVIDENCE}: rows that are probably corrupt, calibrated by planted damage; the marks of "
        f"other operators are votes that decide nothing. {ALL}: every operator that marks rows must mark the "
        f"row; {ANY}: one is enough; or the name of the one that decides alone (`group`, `eos`). Default: "
        f"{EVIDENCE} if rows have features and labels, else {ALL}",
    )
    evidence: EvidenceParams = EvidenceParams()
    """Only ``rule: evidence`` reads it."""
    resources: Resources = Resources()
    """Of one task."""

    @model_validator(mode="after")
    def _reads_evidence(self) -> Self:
        if self.rule not in (None, EVIDENCE) and "evidence" in self.model_fields_set:
            raise ValueError(f"evidence is read by rule: {EVIDENCE} only; the rule is {self.rule!r}")
        return self
