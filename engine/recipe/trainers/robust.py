"""Trainers that weigh the rows of each gradient step by their losses, by a rule: ``gdro`` and the DOROs."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from engine.recipe.trainers.base import TrainParams


class StepwiseParams(TrainParams):
    """Base of the trainers that weigh the rows of every gradient step by their losses, by a rule."""

    refuses_estimators: ClassVar[str | None] = (
        "changes the rows' weights in every gradient step, and {model} is fitted to rows with fixed weights"
    )


class GdroParams(StepwiseParams):
    """Group DRO (Sagawa et al. 2020, Algorithm 1)."""

    trainer: Literal["gdro"] = "gdro"
    sampling: Literal["shuffle", "group_balanced", "weight"] = "group_balanced"
    """An epoch's rows, drawn with replacement: each group as often (by weight inside a group), as in the
    paper's experiments. With ``shuffle`` a group below 1/batch_size of the rows is absent from most steps, so
    that its weight does not grow."""
    step_size: float = Field(default=0.01, gt=0)
    """q_g grows by exp(step_size * loss_g) a step."""
    adjustment: float = Field(default=0.0, ge=0)
    """C: adds C/sqrt(n_g) to a group's loss, against the overfitting of small groups."""


class DoroParams(StepwiseParams):
    """DORO (Zhai et al. 2021, ICML): the tail of a batch without its worst rows, which may be outliers."""

    trainer: Literal["cvar_doro", "chi2_dro"]
    alpha: float = Field(default=0.2, gt=0, le=1)
    """Size of the tail; for chi2_dro the ball of distributions has chi-square radius (1/alpha - 1)^2."""
    eps: float = Field(default=0.005, ge=0, lt=1)
    """Share of each batch that is left out as outliers; 0 is plain CVaR or chi-square DRO."""
