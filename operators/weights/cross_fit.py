"""Self-confidence: the probability of a row's label by a classifier that was trained without the row.

Confident learning ranks label errors by it (Northcutt, Jiang, Chuang 2021). Here all groups have the same
weight in the training, since otherwise rows that break a cue would be as unlikely as wrong labels.

Importing this module does not import torch, so that a driver on Ray, which only hands the folds out, does
without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Float64, Integers
from operators.base import FEATURES, GROUP, LABEL, ROW_ID, OperatorError, Resources, ShardReader
from operators.bounded_json import read_json
from operators.columns import vectors_to_numpy
from operators.hashing import folds_of
from operators.models.spec import ModelSpec
from operators.probe.job import CachedShards, Predictor, open_predictor, train_into
from operators.probe.rows import Rows, Shards
from operators.probe.settings import Settings
from operators.weights.kernel import (
    OUTLIER,
    LabelTrust,
    balanced_weights,
    doubtful,
    group_keys,
    trusted_share,
)
from operators.weights.params import CrossFit, WeightsParams

if TYPE_CHECKING:
    from operators.communicator import Communicator

PURPOSE = "weights/trust-folds"
COLUMNS = (FEATURES, LABEL, GROUP)


def rows_without(
    fold: int,
    X: npt.NDArray[np.float32],
    y: Integers,
    keys: Integers,
    folds: Integers,
    sizes: Mapping[int, int],
) -> Rows:
    """Return the rows of all other folds, with weights of the same sum for every group and 1 for noise rows.

    Noise is not balanced as a group: it may be few rows, many of them corrupt, which would get a large
    weight.

    Parameters
    ----------
    X, y, keys, folds : (n, d) features, (n,) class, group (``group_keys``) and fold of each row.
    sizes : rows of each group in the whole dataset, by ``group_keys``.
    """
    groups = {key: n_rows for key, n_rows in sizes.items() if key >= 0}
    weights = balanced_weights(np.where(keys >= 0, keys, OUTLIER), groups)
    others = np.flatnonzero(folds != fold)
    return Rows(X, y.astype(np.int64), weights).take(others)


def self_confidence(
    predictors: Sequence[Predictor], X: npt.NDArray[np.float32], y: Integers, folds: Integers
) -> Float64:
    """Return the probability (n,) of each row's own label by the model of its fold."""
    p = np.empty(len(y))
    for fold, predict in enumerate(predictors):
        mine = np.flatnonzero(folds == fold)
        p[mine] = np.exp(-predict(X[mine], y[mine].astype(np.int64))[1].astype(np.float64))
    return p


def trust_of(
    predictors: Sequence[Predictor],
    X: npt.NDArray[np.float32],
    y: Integers,
    keys: Integers,
    folds: Integers,
    largest: Mapping[int, int],
    priors: Sequence[float],
) -> Float64:
    """Return the weight factor (n,) of each row: 1 in the largest group of its class, else
    :func:`trusted_share`.
    """
    found, unsure = np.ones(len(y)), doubtful(y, keys, largest)
    p = self_confidence(predictors, X[unsure], y[unsure], folds[unsure])
    found[unsure] = trusted_share(p, np.asarray(priors)[y[unsure]])
    return found


def spec_of(params: CrossFit, n_features: int, n_classes: int) -> ModelSpec:
    """Return the parameters as the kernel's model specification."""
    return ModelSpec(
        model=params.model,
        hidden=params.hidden,
        standardize=params.standardize,
        n_features=n_features,
        n_classes=n_classes,
    )


@dataclass
class ShardsWithout(CachedShards):
    """Training rows of every shard, those of one fold left out."""

    fold: int = field(kw_only=True)
    trust: LabelTrust = field(kw_only=True)
    sizes: Mapping[int, int] = field(kw_only=True)

    def _read(self, shard: int) -> Rows:
        X, y, keys, folds = arrays_of(self.reader.read(shard, COLUMNS), self.trust.n_folds, self.trust.seed)
        return rows_without(self.fold, X, y, keys, folds, self.sizes)


def arrays_of(
    table: pa.Table, n_folds: int, seed: int
) -> tuple[npt.NDArray[np.float32], Integers, Integers, Integers]:
    """Return the features, classes, groups and folds of a shard's rows."""
    y = table.column(LABEL).to_numpy()
    folds = folds_of(table.column(ROW_ID).to_numpy(), n_folds, seed, PURPOSE)
    return vectors_to_numpy(table.column(FEATURES)), y, group_keys(y, table.column(GROUP).to_numpy()), folds


@dataclass(frozen=True)
class FoldJob:
    """Trains the classifier without one fold. Picklable."""

    reader: ShardReader
    state: Path
    params: WeightsParams
    sizes: Mapping[int, int]
    trust: LabelTrust

    def __call__(self, fold: int, communicator: Communicator | None = None) -> float:
        """Train, store the model in :func:`fold_folder`, and return its mean loss on the training rows.

        All workers of a communicator call it; rank 0 stores the model.
        """
        cross_fit = self.params.cross_fit
        shards = ShardsWithout(self.reader, fold=fold, trust=self.trust, sizes=self.sizes)
        spec = spec_of(cross_fit, _width(shards), self.trust.n_classes)
        settings, seed = Settings.of(cross_fit), self.trust.seed + fold
        folder = fold_folder(self.state, fold)
        resources = self.params.resources
        trained = train_into(folder, spec, shards, settings, seed, resources, communicator)
        return trained.train_loss


def fold_folder(state: Path, fold: int) -> Path:
    """Return the folder of the model that has not seen a fold."""
    return state / f"without-{fold}"


def open_trust(trust: LabelTrust, state: Path) -> Callable[[pa.Table], Float64]:
    """Load the models of all folds; return a function from a shard's rows to their trust (n,) in [0, 1]."""
    predictors = [open_predictor(fold_folder(state, fold), Resources()) for fold in range(trust.n_folds)]

    def share(table: pa.Table) -> Float64:
        rows = arrays_of(table, trust.n_folds, trust.seed)
        return trust_of(predictors, *rows, trust.largest, trust.priors)

    return share


def _width(shards: Shards) -> int:
    for shard in range(len(shards)):
        if len(rows := shards[shard]):
            return int(rows.X.shape[1])
    raise OperatorError(
        "weights: no rows are left to train on without one fold. Lower weights.cross_fit.folds, or set "
        "weights.trust to 'all'."
    )


def count_classes(ingest: Path) -> int:
    """Return the number of classes that ``ingest`` found."""
    found: dict[str, list[object]] = read_json(ingest / "classes.json")
    return len(found["classes"])
