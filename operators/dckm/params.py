"""Parameters of the ``dckm`` and ``decorrelation`` operators."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from operators.base import OperatorParams, Resources


class BalanceParams(OperatorParams):
    """Parameters of both operators: factors of the objective, coding of the features, limits."""

    execution_only: ClassVar[frozenset[str]] = frozenset({"resources"})

    lambda1: float = Field(default=0.01, ge=0)
    """Factor of the balance cost: how much correlation costs."""
    lambda2: float = Field(default=10.0, ge=0)
    """Factor of the sum of squared weights: how much unequal weights cost."""
    lambda3: float = Field(default=1.0, gt=0)
    """Factor of (sum of weights - 1)^2, which keeps weights from vanishing."""
    min_effective_share: float = Field(default=0.5, ge=0, lt=1)
    """Lower limit of the effective sample size of the weights, as a share of the rows: steps that would go
    below it are shortened. The paper has no limit (0): there ever fewer rows hold the weight as loops go
    on.
    """
    max_iter: int = Field(default=100, ge=1)
    """Largest number of steps; each reads the rows twice."""
    tol: float = Field(default=0.01, ge=0)
    """Stop when the objective changes by less."""
    coding: Literal["binarize", "standardize"] = "binarize"
    """``binarize``: -1 or +1, the latter above the mean (binary features stay as they are);
    ``standardize``: mean 0 and standard deviation 1, treated above the mean.
    """
    resources: Resources = Resources()
    """Resources of one task."""


class DckmParams(BalanceParams):
    """Parameters of ``dckm``: k-means on rows weighted so that features correlate less."""

    n_clusters: int = Field(default=10, ge=1)
    """Number of clusters."""
    init: Literal["random", "k-means++"] = "random"
    """``random``: every row starts in a random cluster, as in the paper."""
    max_iter: int = Field(default=20, ge=1)
    """Largest number of outer loops; each reads the rows twice."""
    lambdas: Literal["given", "auto"] = "given"
    """``auto``: lambda1 and lambda2 are the pair of the paper's grid (0.01 to 1000) that leaves the least
    correlation among those that keep an effective sample size of half of the rows, tried on 4,096 rows with
    the other parameters of the recipe."""

    @model_validator(mode="after")
    def _reads_lambdas(self) -> Self:
        given = sorted({"lambda1", "lambda2"} & self.model_fields_set)
        if self.lambdas == "auto" and given:
            raise ValueError(f"{given[0]} is not read beside lambdas: auto; leave one of them out")
        return self


class DecorrelationParams(BalanceParams):
    """Parameters of ``decorrelation``: weights without clusters."""

    lambda1: float = Field(default=1.0, ge=0)
    """Factor of the balance cost: how much correlation costs."""
