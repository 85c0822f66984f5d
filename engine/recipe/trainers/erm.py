"""Trainers that minimise the mean loss of weighted rows once: ``erm``, its baselines and ``resample``."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from engine.recipe.objectives import CROSS_ENTROPY, SQUARED
from engine.recipe.trainers.base import LINEAR, TrainParams


class ErmParams(TrainParams):
    """Empirical risk minimisation with the published weights."""

    trainer: Literal["erm"] = "erm"
    max_mean_loss: float | None = Field(default=None, ge=0, le=1, allow_inf_nan=False)
    """Largest loss of mean accuracy for which the strength of the weighting is chosen. Strengths go from no
    weights over class balance to the full robust weights of ``cues`` (or balance of the groups). The largest
    strength is taken whose mean accuracy is at most this much below the best, by linear models on held-out
    train rows. Default: the published weights, whose strength follows from the evidence for a shortcut,
    whatever they cost."""

    @model_validator(mode="after")
    def _strength_needs_classes(self) -> Self:
        if self.max_mean_loss is not None and self.task == "regression":
            raise ValueError(
                "max_mean_loss bounds the loss of accuracy, and a regression has none. Remove it"
            )
        return self

    @model_validator(mode="after")
    def _strength_needs_weights(self) -> Self:
        if self.max_mean_loss is not None and not self.weights:
            raise ValueError("max_mean_loss chooses the strength of weights; weights is false. Remove one.")
        return self

    @property
    def uses_lbfgs(self) -> bool:
        """Return whether the model is solved to its optimum by L-BFGS instead of being trained by steps."""
        return _is_logistic_erm(self)

    @property
    def uses_least_squares(self) -> bool:
        """Return whether the model is solved to its optimum by least squares."""
        return _is_linear_erm(self)


class BaselineParams(TrainParams):
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

    @property
    def uses_lbfgs(self) -> bool:
        """Return whether the model is solved to its optimum by L-BFGS instead of being trained by steps."""
        return _is_logistic_erm(self)

    @property
    def uses_least_squares(self) -> bool:
        """Return whether the model is solved to its optimum by least squares."""
        return _is_linear_erm(self)


def _is_logistic_erm(params: TrainParams) -> bool:
    plain = params.model == "logistic" and params.objective == CROSS_ENTROPY and _is_plain_erm(params)
    return plain and params.optimizer in ("auto", "lbfgs")


def _is_linear_erm(params: TrainParams) -> bool:
    plain = params.model == LINEAR and params.objective == SQUARED and _is_plain_erm(params)
    return plain and params.optimizer == "auto"


def _is_plain_erm(params: TrainParams) -> bool:
    """Return whether every key that decides the way to the optimum has its default."""
    plain = params.sampling == "shuffle" and params.keep == "last" and params.schedule == "constant"
    return plain and not params.warmup and params.clip is None


class ResampleParams(TrainParams):
    """ERM on rows in balance over groups (Idrissi et al. 2022), by the published weights inside them."""

    trainer: Literal["resample"] = "resample"
    sampling: Literal["group_balanced"] = "group_balanced"
    """An epoch's rows, drawn with replacement: each group as often, by weight inside a group. An estimator
    gets the expected number of draws as sample weights."""
