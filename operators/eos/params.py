"""Parameters of the ``eos`` operator."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from operators.base import OperatorParams, Resources
from operators.eos.alpha import EFFICIENCY, MAX_FLAGGED

MODEL_KEYS = {
    "gaussian": {"features", "by_class", "regularization"},
    "kmeans": {"features", "by_class", "n_clusters"},
    "least_squares": {"features", "l2"},
    "spa": {"features", "n_clusters", "label_weight"},
    "probe": set[str](),
    "loss": {"by_class"},
}


class EosParams(OperatorParams):
    """The model whose losses determine the weights, how strongly they do, and when to stop."""

    model: Literal["gaussian", "kmeans", "least_squares", "spa", "probe", "loss"] = "gaussian"
    """Model whose losses are used. ``gaussian``: mean and covariance; ``kmeans``: distance to the nearest of
    ``n_clusters`` centres; ``least_squares``: linear regression of the class indicators; ``spa``: boxes
    with a label share each; ``probe``: the recipe's probe, trained again with the weights; ``loss``: the
    stored losses of the probe.
    """
    features: Literal["x", "gradient"] = "x"
    """Input of the first four models: features or per-sample gradients."""
    by_class: bool = True
    """A model, an alpha and weights of mean 1 for each class by itself; otherwise a rare class looks like
    outliers of the others. Only ``gaussian``, ``kmeans`` and ``loss`` read it.
    """
    alpha: float | Literal["auto"] = "auto"
    """Price of unequal weights, in units of the loss. ``auto``: the smallest alpha that keeps an effective
    sample size of ``efficiency`` times the rows that are not flagged, found on a sample of 4,096 rows
    (with the model ``probe``, for its stored losses).
    """
    efficiency: float = Field(default=EFFICIENCY, gt=0, lt=1)
    """Effective share that ``alpha: auto`` keeps; nothing else reads it."""
    most_flagged: float = Field(default=MAX_FLAGGED, gt=0, le=MAX_FLAGGED)
    """``alpha: auto`` avoids an alpha that flags this share of a class or more. Lower it, for example to
    0.1, if a rare group must not be flagged for being far from the rest.
    """
    threshold: float = Field(default=0.01, gt=0, lt=1)
    """A row whose weight is below this share of the mean is an outlier."""
    start: Literal["uniform", "random"] = "uniform"
    """Weights before the first fit."""
    n_init: int = Field(default=1, ge=1)
    """Number of starts, all but the first random; the one with the lowest objective is kept."""
    max_iter: int = Field(default=100, ge=1)
    """Largest number of iterations, each of which is one pass over the shards."""
    tol: float = Field(default=1e-06, ge=0)
    """Stop when the objective falls by tol * alpha or less."""
    n_clusters: int = Field(default=8, ge=1)
    """Number of clusters or boxes; only ``kmeans`` and ``spa`` read it."""
    label_weight: float = Field(default=1.0, ge=0)
    """Factor of the label in the loss of ``spa``."""
    regularization: float = Field(default=1e-06, gt=0)
    """Ridge on the covariance of ``gaussian``, in units of the variances."""
    l2: float = Field(default=0.001, ge=0)
    """Ridge penalty of ``least_squares``."""
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _fits_the_model(self) -> Self:
        for key in sorted(set().union(*MODEL_KEYS.values()) & self.model_fields_set):
            if key not in MODEL_KEYS[self.model]:
                raise ValueError(f"{key} is not read by model: {self.model}")
        if self.alpha != "auto" and not 0 < self.alpha < float("inf"):
            raise ValueError(f"alpha is {self.alpha}; it must be 'auto' or a finite number above 0")
        return self
