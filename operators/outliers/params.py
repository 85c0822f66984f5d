"""Parameters of the ``outliers`` operator."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from operators.base import OperatorParams, Resources

EVIDENCE = "evidence"


class EvidenceParams(OperatorParams):
    """The calibrated verdict: which rows are probably corrupt."""

    max_rows: int = Field(default=50_000, ge=100, le=50_000)
    """Size of the sample from which the verdict is learnt; smaller for rows of more than 400 features.

    Held-out and rejected rows count for it and are then left out."""
    min_precision: float = Field(default=0.7, gt=0, lt=1)
    """Lower limit of the estimated share of corrupt rows among the marked ones."""
    min_posterior: float = Field(default=0.5, gt=0, lt=1)
    """Rows whose probability of being corrupt is smaller are not marked."""
    min_prevalence: float = Field(default=0.0015, ge=0, lt=1)
    """A kind of damage that is estimated to be rarer is not marked."""


class OutliersParams(OperatorParams):
    """The rule by which rows are marked as corrupt."""

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources"})

    rule: str | None = None
    """``evidence``: rows that are probably corrupt, calibrated by planted damage; marks of other operators
    do not decide. ``all``: every operator that marks rows must mark the row. ``any``: one is enough. Or
    the name of the operator that decides alone (``group``, ``eos``). Default: ``evidence`` if rows have
    features and labels, else ``all``.
    """
    evidence: EvidenceParams = EvidenceParams()
    """Only ``rule: evidence`` reads it."""
    resources: Resources = Resources()
    """Resources of one task."""

    @model_validator(mode="after")
    def _reads_evidence(self) -> Self:
        if self.rule not in (None, EVIDENCE) and "evidence" in self.model_fields_set:
            raise ValueError(f"evidence is read by rule: {EVIDENCE} only; the rule is {self.rule!r}")
        return self
