"""GEORGE's first step: subclasses of a class by over-clustering features and loss.

Source: Sohoni, Dunnmon, Angus, Gu, Re: No Subclass Left Behind, NeurIPS 2020; GRASP (Zeng et al. 2022,
appendix E.1.2) runs it with over-clustered Gaussian mixtures and picks the factor by silhouette. Within
a class:

1. Features are reduced and the loss of the trained model is one more of them.
2. A Gaussian mixture with k components is fitted for several k; the largest mean silhouette wins.
3. A second mixture has F k components. An over-cluster that is large enough and whose rows have a mean
   silhouette coefficient above 0 becomes a group of its own; all other rows stay in their first cluster.
   Of several F the largest mean silhouette wins; F = 1 keeps the first clusters.

Deviation: the paper reduces the activations before the last layer by UMAP. Here the features ``x``, which are
the input of the last layer for a linear probe, are reduced by principal components, so that new rows are
placed by the same linear map. Components are divided by the standard deviation of the first, the loss by its
own.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from operators.arrays import Float64, Labels
from operators.base import FEATURES, LOSS, OperatorParams
from operators.groups.kernel import Array, Columns, GroupMethod, GroupResult, State
from operators.groups.params import GeorgeParams
from operators.groups.silhouette_choice import ScoredRows, keep_below_distinct, sort_unique
from operators.threads import limit_threads

MIXTURE = ("weights_", "means_", "covariances_", "precisions_cholesky_")


class George(GroupMethod[GeorgeParams]):
    """Splits a class by Gaussian mixtures; a new row goes to its likeliest component's group."""

    version = 2
    Params: ClassVar[type[OperatorParams]] = GeorgeParams

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the columns that are clustered: features and the probe's loss."""
        return FEATURES, LOSS

    def fit(self, columns: Columns, seed: int) -> GroupResult:
        """Cluster the features of a class, with its losses, by :func:`fit_george`."""
        return fit_george(columns[FEATURES], columns[LOSS], self.params, seed)

    def predict(self, state: State, columns: Columns) -> Labels:
        """Assign rows to groups by :func:`place`; all to group 0 where the state is empty."""
        if not state:
            return np.zeros(len(columns[LOSS]), np.int32)
        return place(state, reduced(state, columns[FEATURES], columns[LOSS]))


def fit_george(X: Array, loss: Array, params: GeorgeParams, random_state: int = 0) -> GroupResult:
    """Find the groups of one class; see the module's docstring.

    Parameters
    ----------
    X : (n, d) finite features.
    loss : (n,) finite loss of each row.
    params : defaults in :class:`~operators.groups.params.GeorgeParams`.
    random_state : seed of the mixtures and of the rows drawn for the silhouettes.

    Returns
    -------
    labels (n,), the state of both mixtures, scores ``k``, ``overcluster`` and ``silhouette``. Equal rows are
    one group, with an empty state.
    """
    if (X[0] == X).all() and (loss == loss[0]).all():
        return GroupResult(np.zeros(len(X), np.int32), 1, {})
    with limit_threads(1):
        state = _reduction(X, loss, params.components, random_state)
        Z = reduced(state, X, loss)
        sample = ScoredRows(Z, params.silhouette_rows, random_state)
        first, k = _first_clusters(Z, sample, params, random_state)
        choices: list[tuple[int, State]] = []
        for factor in sort_unique(params.overcluster):
            if factor == 1:
                choices.append((1, state | first))
            elif keep_below_distinct(Z, [factor * k]) == [factor * k]:
                over = _over_clusters(Z, sample, factor * k, params, random_state)
                choices.append((factor, state | first | over))
        choices = choices or [(1, state | first)]
        labelings = [place(choice, Z) for _, choice in choices]
    silhouettes = sample.silhouettes(labelings)
    best = int(np.argmax(silhouettes))
    factor, chosen = choices[best]
    n_groups = k + int(chosen["own"].max()) + 1 if "own" in chosen else k
    scores = {"k": float(k), "overcluster": float(factor), "silhouette": float(silhouettes[best])}
    labels = labelings[best]
    rows = np.maximum(np.bincount(labels, minlength=n_groups), 1)[:, None]
    centres = np.stack([np.bincount(labels, column, n_groups) for column in Z.T], axis=1) / rows
    return GroupResult(labels, n_groups, chosen, scores, centres)


def reduced(state: State, X: Array, loss: Array) -> Float64:
    """Return principal components and loss, (n, c + 1) float64, scaled as in ``fit``."""
    Z = (X.astype(np.float64) - state["mean"]) @ state["axes"].T / state["spread"]
    extra = (loss.astype(np.float64) - state["loss_mean"]) / state["loss_spread"]
    return np.column_stack([Z, extra])


def place(state: State, Z: Float64) -> Labels:
    """Return the group (n,) int32 of rows: that of their over-cluster if it has one, else their first
    cluster.
    """
    labels = _mixture(state, "first_").predict(Z).astype(np.int32)
    if "own" not in state:
        return np.asarray(labels)
    own = state["own"][_mixture(state, "over_").predict(Z)]
    n_first = len(state["first_weights_"])
    return np.asarray(np.where(own >= 0, n_first + own, labels), np.int32)


def _reduction(X: Array, loss: Array, components: int, seed: int) -> dict[str, Array]:
    from sklearn.decomposition import PCA

    with np.errstate(invalid="ignore"):  # equal features: scikit-learn divides by their variance
        model = PCA(min(components, *X.shape), random_state=seed).fit(X.astype(np.float64))
    spread = np.sqrt(model.explained_variance_[0])
    deviation = float(np.std(loss, dtype=np.float64))
    return {
        "mean": model.mean_,
        "axes": model.components_,
        "spread": np.float64(spread or 1.0),
        "loss_mean": np.mean(loss, dtype=np.float64),
        "loss_spread": np.float64(deviation or 1.0),
    }


def _first_clusters(
    Z: Float64, sample: ScoredRows, params: GeorgeParams, seed: int
) -> tuple[dict[str, Array], int]:
    """Return the mixture with the largest mean silhouette, the first of equals, and its k."""
    tried = keep_below_distinct(Z, sort_unique(params.k))
    models = [_fit_mixture(Z, k, params.n_init, seed) for k in tried]
    best = int(np.argmax(sample.silhouettes([model.predict(Z) for model in models])))
    return _stored(models[best], "first_"), tried[best]


def _over_clusters(
    Z: Float64, sample: ScoredRows, n: int, params: GeorgeParams, seed: int
) -> dict[str, Array]:
    """Return a mixture of n components, and which of them are groups of their own (``own``; -1: not)."""
    model = _fit_mixture(Z, n, params.n_init, seed)
    labels = model.predict(Z)
    sizes = np.bincount(labels, minlength=n)
    kept = labels[sample.rows]
    coefficients = np.bincount(kept, sample.coefficients(labels), n)
    large = sizes >= max(params.min_rows, params.min_share * len(Z))
    good = large & (coefficients > 0)
    own = np.where(good, np.cumsum(good) - 1, -1).astype(np.int32)
    return _stored(model, "over_") | {"own": own}


def _fit_mixture(Z: Float64, k: int, n_init: int, seed: int) -> Any:
    from sklearn.mixture import GaussianMixture

    return GaussianMixture(k, n_init=n_init, random_state=seed).fit(Z)


def _stored(model: Any, prefix: str) -> dict[str, Array]:
    return {prefix + name: np.asarray(getattr(model, name)) for name in MIXTURE}


def _mixture(state: State, prefix: str) -> Any:
    from sklearn.mixture import GaussianMixture

    model = GaussianMixture(len(state[prefix + "weights_"]))
    for name in MIXTURE:
        setattr(model, name, state[prefix + name])
    return model
