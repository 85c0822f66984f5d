"""Trainers that minimise the mean loss of weighted rows once: ``erm``, its baselines and ``resample``."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from engine.recipe.objectives import CROSS_ENTROPY, SQUARED
from engine.recipe.trainers.base import LINEAR, TrainParams


class MeanLossParams(TrainParams):
    """Parameters of trainers that minimise the mean loss of weighted rows, where possible by a solver."""

    @property
    def uses_lbfgs(self) -> bool:
        """Return whether the model is solved to its optimum by L-BFGS instead of being trained by steps."""
        known = self.model == "logistic" and self.objective == CROSS_ENTROPY and self._is_plain
        return known and self.optimizer in ("auto", "lbfgs")

    @property
    def uses_least_squares(self) -> bool:
        """Return whether the model is solved to its optimum by least squares."""
        known = self.model == LINEAR and self.objective == SQUARED and self._is_plain
        return known and self.optimizer == "auto"

    @property
    def _is_plain(self) -> bool:
        """Return whether every key that decides the way to the optimum has its default."""
        plain = self.sampling == "shuffle" and self.keep == "last" and self.schedule == "constant"
        return plain and not self.warmup and self.clip is None


class ErmParams(MeanLossParams):
    """Empirical risk minimisation with the published weights."""

    trainer: Literal["erm"] = "erm"
    max_mean_loss: float | None = Field(default=None, ge=0, le=1)
    """Largest loss of mean accuracy for which the strength of the weighting is chosen. Strengths go from no
    weights over class balance to the full robust weights of ``cues`` (or balance of the groups). The largest
    strength is taken whose mean accuracy is at most this much below the best and whose worst group is no
    worse than without weights, by linear models on held-out train rows. Default: the published weights, whose
    strength follows from the evidence for a shortcut, whatever they cost."""

    @model_validator(mode="after")
    def _strength_needs_classes(self) -> Self:
        if self.max_mean_loss is not None and self.task == "regression":
            raise ValueError(
                "max_mean_loss bounds the loss of accuracy, and a regression has none. Remove it"
            )
        return self

    @model_validator(mode="after")
    def _strength_needs_features(self) -> Self:
        if self.max_mean_loss is not None and self.is_pretrained:
            raise ValueError(
                f"max_mean_loss chooses by linear models on features, and {self.model} has texts or images. "
                f"Remove it"
            )
        return self

    @model_validator(mode="after")
    def _strength_needs_weights(self) -> Self:
        if self.max_mean_loss is not None and not self.weights:
            raise ValueError("max_mean_loss chooses the strength of weights; weights is false. Remove one.")
        return self


class BaselineParams(MeanLossParams):
    """The two baselines that every robust model is compared with. They do not read the published weights.

    ``erm_plain`` gives every row the same weight; ``erm_class_balanced`` gives every class the same total.
    """

    trainer: Literal["erm_plain", "erm_class_balanced"]
    weights: Literal[False] = False
    """The published weights are not read."""
    sampling: Literal["shuffle"] = "shuffle"
    """Every epoch takes each row once."""

    @property
    def balances_classes(self) -> bool:
        """Return whether rows have the weight of their class, in place of published weights."""
        return self.trainer == "erm_class_balanced"


class ResampleParams(TrainParams):
    """ERM on rows in balance over groups (Idrissi et al. 2022), by the published weights inside them."""

    trainer: Literal["resample"] = "resample"
    sampling: Literal["group_balanced"] = "group_balanced"
    """An epoch's rows, drawn with replacement: each group as often, by weight inside a group. An estimator
    gets the expected number of draws as sample weights."""
