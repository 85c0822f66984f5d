"""Independent evidence that a row is corrupt, in a form that can be asked for any label of the row.

Everything that needs features alone (class log probabilities by models that did not see the row, votes of
its neighbours, distances) is computed once, as a :class:`View`; :func:`evidence` then reads it at a label.
This makes planted flips free: the view of a row at another label is what the row would have shown had its
label been flipped, since neither the models of its fold nor its neighbours' votes contain the row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.covariance import ledoit_wolf

from operators.arrays import Float32, Float64, Int64
from operators.outliers.cross_fit import STAGES, join_stages, stage_fits
from operators.outliers.linear import MANY_CLASSES, CrossFitted, principal_directions
from operators.outliers.neighbours import NeighbourTable, clip_features, cue_directions, principal_basis
from operators.outliers.trees import CrossFittedTrees, join_trees, tree_fits
from operators.threads import in_threads

MARGINS = (*STAGES, "votes", "cue_free_votes", "trees")
NEIGHBOURS = ("votes", "cue_free_votes")
"""Margins that neighbours give: the costly ones."""
DISTANCES = ("distance", "cue_free_distance", "mahalanobis")
NAMES = (*MARGINS, *DISTANCES, "rarity")
DISTANCE_COLUMNS = range(len(MARGINS), len(MARGINS) + len(DISTANCES))
LABEL_COLUMNS = (*range(len(MARGINS)), NAMES.index("rarity"))
MAX_MARGIN = 12.0
"""Bound on a margin: 12 is a probability of 6e-6, far below what a linear model can know."""
MAX_COVARIANCE = 256
"""Principal directions whose covariance is inverted; the rest counts as isotropic."""
BLOCK = 512
"""Rows looked at together, always this many: matrix products may round otherwise for another shape."""


@dataclass(frozen=True)
class View:
    """Evidence on n rows that does not depend on their labels."""

    log_p: Float64
    """(len(MARGINS), n, n_classes) log probabilities by each model and each vote."""
    distances: Float64
    """(n, 3) log distances, in the order of ``DISTANCES``."""


@dataclass(frozen=True)
class Mahalanobis:
    """Distances from the mean by the shrunk covariance without each fold."""

    directions: Float32
    """(d, r) principal directions of the standardised features, all of them up to ``MAX_COVARIANCE``."""
    precisions: Float32
    """(n_folds, r, r) inverse covariance in these directions without each fold."""
    residual: float
    """Inverse variance in each other direction; 0 if there is none."""

    def __call__(self, Z: Float32, folds: Int64) -> Float64:
        """Return (n,) distances of standardised rows (n, d), by the mean of all folds for fold -1."""
        projected = Z @ self.directions
        rest = np.maximum((Z.astype(np.float64) ** 2).sum(1) - (projected.astype(np.float64) ** 2).sum(1), 0)
        squared = [np.einsum("ij,ij->i", projected @ P, projected) for P in self.precisions]
        every = np.sqrt(np.maximum(np.stack(squared, axis=1), 0) + self.residual * rest[:, None])
        own = every[np.arange(len(Z)), np.maximum(folds, 0)]
        return np.asarray(np.where(folds < 0, every.mean(axis=1), own), np.float64)

    @classmethod
    def fit(cls, Z: Float32, folds: Int64) -> Mahalanobis:
        """Fit on standardised rows (n, d), by Ledoit and Wolf's shrinkage plus 1e-3 of the mean variance."""
        d = Z.shape[1]
        directions, residual = np.eye(d, dtype=np.float32), 0.0
        if d > MAX_COVARIANCE:
            variances, vectors = principal_directions(Z, MAX_COVARIANCE)
            directions = vectors.astype(np.float32)
            total = float(Z.var(axis=0, dtype=np.float64).sum())
            rest = (total - float(variances.sum())) / (d - len(variances))
            residual = 1.0 / max(rest, 1e-3 * total / d, 1e-12)
        projected = Z @ directions
        parts = [inverse_covariance(projected[folds != fold]) for fold in range(int(folds.max()) + 1)]
        return cls(directions, np.stack(parts), residual)


@dataclass(frozen=True)
class Sources:
    """Everything fitted that evidence comes from."""

    models: CrossFitted
    """The stages ``STAGES``."""
    trees: CrossFittedTrees | None
    """The second model of labels; None where there are too many classes."""
    raw: NeighbourTable
    cue_free: NeighbourTable
    mahalanobis: Mahalanobis
    priors: Float64
    """(n_classes,) smoothed shares of the classes."""

    def view(self, Z: Float32, folds: Int64, ids: Int64) -> View:
        """Look at rows, whose views do not depend on each other.

        Parameters
        ----------
        Z : (n, d) standardised features.
        folds : (n,) fold of each row of the sample, -1 for other rows.
        ids : (n,) row ids; a row of the sample is not its own neighbour.
        """

        def look(start: int) -> View:
            n = len(Z[start : start + BLOCK])
            pad = (0, BLOCK - n)
            block = self.view_block(
                np.pad(Z[start : start + BLOCK], (pad, (0, 0))),
                np.pad(folds[start : start + BLOCK], pad),
                np.pad(ids[start : start + BLOCK], pad),
            )
            return View(block.log_p[:, :n], block.distances[:n])

        self.prepare()
        parts = in_threads(look, range(0, len(Z), BLOCK))
        return View(
            np.concatenate([part.log_p for part in parts], axis=1),
            np.concatenate([part.distances for part in parts]),
        )

    def prepare(self) -> None:
        """Make what all blocks of rows share, before several threads look at blocks."""
        for table in (self.raw, self.cue_free):
            table.prepare()

    def view_block(self, Z: Float32, folds: Int64, ids: Int64) -> View:
        """Look at exactly ``BLOCK`` rows; see :meth:`view`."""
        view = self.view_without_neighbours(Z, folds)
        self.add_neighbours(view, Z, ids, np.arange(BLOCK))
        return view

    def view_without_neighbours(self, Z: Float32, folds: Int64) -> View:
        """Look at exactly ``BLOCK`` rows without their neighbours, whose places hold 0."""
        models = self.models.log_proba(Z, folds)
        # Without trees the linear model stands in: its column then adds nothing.
        trees = models[0] if self.trees is None else self.trees.log_proba(Z, folds, len(self.priors))
        log_p = np.zeros((len(MARGINS), *trees.shape))
        log_p[: len(STAGES)], log_p[MARGINS.index("trees")] = models, trees
        distances = np.zeros((BLOCK, len(DISTANCES)))
        distances[:, DISTANCES.index("mahalanobis")] = np.log(self.mahalanobis(Z, folds) + 1e-6)
        return View(log_p, distances)

    def add_neighbours(self, view: View, Z: Float32, ids: Int64, rows: Int64) -> None:
        """Write the votes and distances of the neighbours of some rows of a block into its view."""
        for table, votes, distance in zip((self.raw, self.cue_free), NEIGHBOURS, DISTANCES, strict=False):
            shares, near = table.search(Z, ids, rows)
            view.log_p[MARGINS.index(votes), rows] = np.log(shares)
            view.distances[rows, DISTANCES.index(distance)] = np.log(near + 1e-6)


def fit_sources(
    Z: Float32,
    y: Int64,
    folds: Int64,
    ids: Int64,
    n_classes: int,
    *,
    k: int,
    max_index: int,
    with_trees: bool = True,
) -> Sources:
    """Fit all models on the n rows of the sample: of 5 folds, 30 linear ones and 5 of trees.

    Parameters
    ----------
    Z : (n, d) standardised features.
    y, folds, ids : (n,) class index, fold and row id.
    k : neighbours that vote.
    max_index : rows in the neighbour tables, the first ones.
    with_trees : whether trees judge labels, too.
    """
    priors = (np.bincount(y, minlength=n_classes) + 1.0) / (len(y) + n_classes)
    trees_of = tree_fits(Z, y, folds, n_classes) if with_trees else []
    # Trees first: they take longest, and the linear models fill the threads that have no more of them.
    fitted = in_threads(lambda fit: fit(), [*trees_of, *stage_fits(Z, y, folds, priors)])
    trees, models = join_trees(fitted[: len(trees_of)]), join_stages(fitted[len(trees_of) :])
    breaks = breaks_cue(models, Z, y, folds)

    def make_table(basis: Float32) -> NeighbourTable:
        kept = slice(0, max_index)
        points = np.ascontiguousarray(clip_features(Z[kept]) @ basis)
        return NeighbourTable(basis, points, y[kept], ids[kept], n_classes, k)

    cue_free = principal_basis(Z, cue_directions(Z, y, breaks, n_classes))
    return Sources(
        models, trees, make_table(principal_basis(Z)), make_table(cue_free), Mahalanobis.fit(Z, folds), priors
    )


def log_total(log_p: Float64) -> Float64:
    """Return (n,) log sums of probabilities (n, n_classes) given by their logarithms, at least one not 0.

    Of many classes ``logaddexp`` takes ten times as long as one sum does.
    """
    if log_p.shape[1] <= MANY_CLASSES:
        return np.asarray(np.logaddexp.reduce(log_p, axis=1), np.float64)
    most = log_p.max(axis=1)
    return np.asarray(most + np.log(np.exp(log_p - most[:, None]).sum(axis=1)), np.float64)


def breaks_cue(models: CrossFitted, Z: Float32, y: Int64, folds: Int64) -> Float64:
    """Return (n,) in [0, 1], how surely the biased model gets a row wrong that the robust one gets right."""
    p = np.exp(models.log_proba(Z, folds)[:, np.arange(len(y)), y])
    return np.asarray((1 - p[STAGES.index("biased")]) * p[STAGES.index("robust")], np.float64)


def inverse_covariance(Z: Float32) -> Float32:
    """Return the (d, d) inverse of the Ledoit-Wolf covariance plus 1e-3 of its mean variance."""
    covariance, _ = ledoit_wolf(Z.astype(np.float64), assume_centered=True)
    ridge = 1e-3 * np.trace(covariance) / len(covariance) + 1e-12
    return np.linalg.inv(covariance + ridge * np.eye(len(covariance))).astype(np.float32)


def evidence(view: View, y: Int64, priors: Float64) -> Float64:
    """Return (n, len(NAMES)) evidence at labels ``y``; larger is more suspicious.

    The first seven are margins: log odds that the row is of any other class, within +-12. They rank rows as
    the self-confidence of confident learning does, and are the log odds of a flip to a uniformly drawn class.
    ``rarity`` is -log of the class's share: flips hit classes in another proportion than they occur.
    """
    rows = np.arange(len(y))
    columns = []
    for log_p in view.log_p:
        others = log_p.copy()
        others[rows, y] = -np.inf
        odds = log_total(others) - log_p[rows, y]
        columns.append(np.clip(odds, -MAX_MARGIN, MAX_MARGIN))
    return np.column_stack([*columns, view.distances, -np.log(priors)[y]])
