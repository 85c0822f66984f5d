"""Parameters of the ``weights`` operator."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from operators.base import OperatorParams, Resources
from operators.class_shares import MIN_CLASS_ROWS
from operators.models.spec import ModelName, Widths


class CrossFit(OperatorParams):
    """The classifiers that tell rare rows from corrupt ones, each trained without the rows it judges."""

    folds: int = Field(default=5, ge=2, le=20)
    """Parts the rows are dealt into by a hash of their id; so many classifiers are trained."""
    model: ModelName = "logistic"
    """``logistic``, ``mlp`` or ``package.module:factory``: one that could learn the rare groups, such as the
    one that will be trained on the weights."""
    hidden: Widths = (50, 50)
    """Widths of the ReLU layers of ``mlp``."""
    l2: float = Field(default=0.01, ge=0)
    """Adds l2/2 ||W||^2 to the mean loss. Far below the probe's: this model should not lean on a cue."""
    standardize: bool = True
    """Centre and scale every feature first."""
    epochs: int = Field(default=50, ge=1)
    """Passes of Adam; ``logistic`` is solved to a tolerance instead."""
    lr: float = Field(default=1e-3, gt=0)
    """Adam's step size."""
    batch_size: int = Field(default=128, ge=1)
    """Rows of a step of Adam."""


class WeightsParams(OperatorParams):
    """How rows are weighed: a share for each group, times the trust in each row."""

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources", "small_rows"})

    method: Literal["robust", "class_balanced", "uniform", "group_balanced"] = Field(
        default="robust",
        description="robust: the product of the factors within limits (`cap`, `min_effective_share`), the "
        "same sum for every class; the operator `cues` is one of the factors unless `factors` leaves it "
        "out. class_balanced: the same sum for every class; uniform: 1 each; group_balanced: the same sum "
        "for every group, rows in no group at most as much each as those of their class's smallest group, "
        "and rows marked as outliers 1. All are multiplied by the factors",
    )
    trust: Literal["all", "self_confidence"] | None = Field(
        default=None,
        description="all: every row alike; self_confidence: a row outside its class's largest group counts "
        "for min(1, p / prior), p being the probability of its label by a classifier that was trained "
        "without it on groups of equal weight, and prior that of its class under the same classifier. "
        "Default: all for robust and class_balanced, self_confidence for uniform and group_balanced",
    )
    cap: float = Field(default=20.0, ge=1, allow_inf_nan=False)
    """Largest weight as a multiple of the weight under class balance. Only ``method: robust`` reads it."""
    min_effective_share: float = Field(default=0.2, gt=0, le=1)
    """Least effective sample size of each class as a share of its kept rows; weights are shrunk towards class
    balance
    until it holds. Only ``method: robust`` reads it."""
    min_class_rows: int = Field(default=MIN_CLASS_ROWS, ge=1)
    """Rows from which a class has the full share of the weight where classes are balanced; a class of n rows
    fewer has (n / min_class_rows)^2 of it. Only ``method: robust`` and ``class_balanced`` read it."""
    class_strength: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="How far classes are balanced: 1 gives every class the same sum, 0 every row the same "
        "weight (ahead of the factors), a value between a sum of n_c^(1 - class_strength). Default: where "
        "`cues` is a factor, the value with the best worst class on held-out rows, else 1. "
        "Only `method: robust` reads it",
    )
    factors: tuple[str, ...] | None = Field(
        default=None,
        description="Other operators' weights that multiply these, such as [eos, dckm]; default: all that "
        "the recipe makes",
    )
    drop_outliers: bool | None = Field(
        default=None,
        description="Whether rows marked as outliers weigh 0, and the mean 1 is that of the others; "
        "default: as split.drop_outliers",
    )
    cross_fit: CrossFit = CrossFit()
    """Only ``trust: self_confidence`` reads it."""
    resources: Resources = Resources()
    """Of one worker of a classifier's training."""
    small_rows: int = Field(default=200_000, ge=0)
    """Up to so many rows each classifier is trained in one task; above, on Ray, by up to 8 of Ray Train's
    workers each, as far as the cluster has room. Same bytes either way."""

    @property
    def trusts_all(self) -> bool:
        """Return whether every row's label is taken as it is."""
        if self.trust is None:
            return self.method in ("robust", "class_balanced")
        return self.trust == "all"

    @model_validator(mode="after")
    def _keys_are_read(self) -> Self:
        if self.trusts_all and "cross_fit" in self.model_fields_set:
            raise ValueError("cross_fit is read by trust: self_confidence only; trust is 'all'")
        limits = self.model_fields_set & {"cap", "min_effective_share", "class_strength"}
        if self.method != "robust" and limits:
            raise ValueError(f"{min(limits)} is read by method: robust only; method is {self.method!r}")
        if self.method not in ("robust", "class_balanced") and "min_class_rows" in self.model_fields_set:
            raise ValueError(
                f"min_class_rows is read by method: robust and class_balanced only; method is {self.method!r}"
            )
        return self
