"""Parameters of the ``weights`` operator."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from operators.base import OperatorParams, Resources
from operators.class_shares import MIN_CLASS_ROWS
from operators.models.spec import ModelName, Widths


class CrossFit(OperatorParams):
    """The classifiers that tell rare rows from corrupt ones, each trained without the rows that it scores."""

    folds: int = Field(default=5, ge=2, le=20)
    """Number of folds, to which rows are assigned by a hash of their id; one classifier is trained for
    each.
    """
    model: ModelName = "logistic"
    """``logistic``, ``mlp`` or ``package.module:factory``: one that could learn the rare groups, such as the
    one that will be trained on the weights."""
    hidden: Widths = (50, 50)
    """Widths of the ReLU layers of ``mlp``."""
    l2: float = Field(default=0.01, ge=0)
    """Adds l2/2 ||W||^2 to the mean loss. Far below the probe's, so that the model does not rely on a cue."""
    standardize: bool = True
    """Centre and scale every feature first."""
    epochs: int = Field(default=50, ge=1)
    """Passes of Adam; ``logistic`` is solved to a tolerance instead."""
    lr: float = Field(default=1e-3, gt=0)
    """Adam's step size."""
    batch_size: int = Field(default=128, ge=1)
    """Rows of a step of Adam."""


class WeightsParams(OperatorParams):
    """The weight of a row: a share for its class or group, times factors and the trust in the row."""

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources", "small_rows"})

    method: Literal["robust", "class_balanced", "uniform", "group_balanced"] = "robust"
    """``robust``: the product of the factors within limits (``cap``, ``min_effective_share``), with the
    same sum for every class; the operator ``cues`` is one of the factors unless ``factors`` leaves it out.
    ``class_balanced``: the same sum for every class. ``uniform``: 1 each. ``group_balanced``: the same sum
    for every group; a row in no group weighs at most as much as a row of its class's smallest group, and 1
    if it is marked as an outlier. A marked row in a group weighs as its group. All are multiplied by the
    factors.
    """
    trust: Literal["all", "self_confidence"] | None = None
    """``all``: labels are not doubted. ``self_confidence``: the weight of a row outside its class's
    largest group is multiplied by min(1, p / prior), where p is the probability of its label by a
    classifier that was trained without the row on groups of equal weight, and prior that of its class
    under the same classifier. Default: ``all`` for robust and class_balanced, ``self_confidence`` for
    uniform and group_balanced.
    """
    cap: float = Field(default=20.0, ge=1)
    """Largest weight as a multiple of the weight under class balance. Only ``method: robust`` reads it."""
    min_effective_share: float = Field(default=0.1, gt=0, le=1)
    """Smallest effective sample size of each class as a share of its kept rows; weights are shrunk towards
    class balance until it holds. Only ``method: robust`` reads it.
    """
    min_class_rows: int = Field(default=MIN_CLASS_ROWS, ge=1)
    """Number of rows from which a class has the full share of the weight where classes are balanced. A
    smaller class of n rows has (n / min_class_rows)^2 of it. Only ``method: robust`` and
    ``class_balanced`` read it.
    """
    class_strength: float | None = Field(default=None, ge=0, le=1)
    """Degree to which classes are balanced: 1 gives every class the same sum, 0 every row the same weight
    (ahead of the factors), a value between a sum of n_c^(1 - class_strength). Default: where ``cues`` is a
    factor, the value with the best worst class on held-out rows, else 1. Only ``method: robust`` reads it."""
    factors: tuple[str, ...] | None = None
    """Other operators' weights that multiply these, such as [eos, dckm]; default: all that the recipe
    makes."""
    drop_outliers: bool | None = None
    """Whether rows marked as outliers weigh 0, and the mean 1 is that of the others; default: as
    split.drop_outliers. Where it is false a marked row keeps its weight, which is several times that of its
    class if it breaks a shortcut; where ``cues`` balances the classes alone, and ``method`` is robust, it
    weighs no more than a row of the largest class."""
    recount: bool = True
    """Whether an increment that places new rows counts the groups and classes of all rows again, so that
    groups stay balanced and the mean stays 1. ``false``: old rows keep their weights and new rows get theirs
    by the counts of the last fit, until operators learn again. Parts of old rows are then linked instead of
    written.
    """
    cross_fit: CrossFit = CrossFit()
    """Only ``trust: self_confidence`` reads it."""
    resources: Resources = Resources()
    """Resources of one worker that trains a classifier."""
    small_rows: int = Field(default=200_000, ge=0)
    """With up to this many rows each classifier is trained in one task. With more, on Ray, up to 8 workers of
    Ray Train share it, as far as the cluster has room. The bytes are the same."""

    @property
    def trusts_all(self) -> bool:
        """Return whether every row's label is taken as it is."""
        if self.trust is None:
            return self.method in ("robust", "class_balanced")
        return self.trust == "all"

    @property
    def setting_beside_cues(self) -> str:
        """Return the setting by which the weights may be others than those of ``cues``; empty if none is."""
        if self.method != "robust":
            return f"method: {self.method}"
        if self.factors is not None and "cues" not in self.factors:
            return f"factors: [{', '.join(self.factors)}]"
        return "" if self.class_strength is None else f"class_strength: {self.class_strength:g}"

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
