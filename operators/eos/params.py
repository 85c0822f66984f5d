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
    """The learner whose losses make the weights, how strongly they do, and when to stop."""

    model: Literal["gaussian", "kmeans", "least_squares", "spa", "probe", "loss"] = Field(
        default="gaussian",
        description="gaussian: mean and covariance; kmeans: distance to the nearest of n_clusters; "
        "least_squares: linear regression of the class indicators; spa: boxes with a label share each; "
        "probe: the recipe's probe, trained again with the weights; loss: the probe's losses as they are",
    )
    features: Literal["x", "gradient"] = Field(
        default="x", description="Input of the first four models: features or per-sample gradients"
    )
    by_class: bool = Field(
        default=True,
        description="gaussian, kmeans and loss: a model, an alpha and weights of mean 1 for each class by "
        "itself; otherwise a rare class looks like outliers of the others",
    )
    alpha: float | Literal["auto"] = Field(
        default="auto",
        description="Price of unequal weights, in units of the loss; auto: the least that keeps an "
        "effective sample size of `efficiency` times the rows that are not flagged, found on a sample of "
        "4,096 rows; with the model probe, for the losses of the probe as it is",
    )
    efficiency: float = Field(default=EFFICIENCY, gt=0, lt=1, description="Only `alpha: auto` reads it")
    most_flagged: float = Field(
        default=MAX_FLAGGED,
        gt=0,
        le=MAX_FLAGGED,
        description="`alpha: auto` takes no alpha that flags this share of a class or more, if there is "
        "another; lower it, to 0.1 say, where a rare group must not be flagged for being far from the rest",
    )
    threshold: float = Field(
        default=0.01,
        gt=0,
        lt=1,
        description="A row whose weight is below this share of the mean is an outlier",
    )
    start: Literal["uniform", "random"] = Field(default="uniform", description="Weights before the first fit")
    n_init: int = Field(
        default=1, ge=1, description="Starts, all but the first random; the lowest end is kept"
    )
    max_iter: int = Field(default=100, ge=1, description="Most iterations, one pass over the shards each")
    tol: float = Field(default=1e-6, ge=0, description="Stop when the objective falls by tol * alpha or less")
    n_clusters: int = Field(default=8, ge=1, description="Of kmeans and spa")
    label_weight: float = Field(
        default=1.0, ge=0, description="Of spa: how much the label counts in the loss"
    )
    regularization: float = Field(
        default=1e-6, gt=0, description="Of gaussian: ridge on the covariance, in units of the variances"
    )
    l2: float = Field(default=1e-3, ge=0, description="Of least_squares")
    resources: Resources = Resources()

    @model_validator(mode="after")
    def _fits_the_model(self) -> Self:
        for key in sorted(set().union(*MODEL_KEYS.values()) & self.model_fields_set):
            if key not in MODEL_KEYS[self.model]:
                raise ValueError(f"{key} is not read by model: {self.model}")
        if self.alpha != "auto" and not 0 < self.alpha < float("inf"):
            raise ValueError(f"alpha is {self.alpha}; it must be 'auto' or a finite number above 0")
        return self
