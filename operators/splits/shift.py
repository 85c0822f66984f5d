"""MMD between validation and training rows over shards, for methods that do not compute it while fitting."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Float64, Int64
from operators.base import FEATURES, SPLIT, Context, Executor, OperatorError
from operators.bounded_json import read_json
from operators.splits.hashed_split import PARTS, TRAIN, VALIDATION
from operators.splits.params import ClusterParams, SplitParams

if TYPE_CHECKING:
    from operators.splits.adaptor import Split
    from operators.splits.start import SplitSettings


_log = logging.getLogger("rowsieve")


def settings_of(params: SplitParams, landmarks: npt.NDArray[Any] | None = None) -> SplitSettings:
    """Return the settings of the kernel for a recipe's parameters.

    Test rows are drawn before, so the share of the remaining rows is h = validation / (1 - test).
    """
    from operators.splits.start import SplitSettings

    search = params if isinstance(params, ClusterParams) else ClusterParams()
    return SplitSettings(
        holdout=params.validation / (1 - params.test),
        kernel=params.kernel,
        gamma=params.gamma,
        landmarks=params.landmarks if landmarks is None else landmarks,
        landmarks_by=params.landmarks_by,
        standardize=params.standardize,
        tolerance=search.tolerance,
        n_init=search.n_init,
        max_iter=search.max_iter,
    )


def stored_landmarks(params: SplitParams, context: Context) -> npt.NDArray[Any] | None:
    """Return landmarks (q, d) drawn from the graph of ``neighbours`` for ``landmarks_by: density``, else
    None.
    """
    if params.kernel != "rbf" or params.landmarks_by != "density":
        return None
    from operators.neighbours import choose_landmarks

    state = context.states["neighbours"]
    space = read_json(state / "graph.json")["params"]["space"]
    if space != "x":
        raise OperatorError(
            f"operators.split.landmarks_by: density needs a neighbour graph of the features x, but "
            f"operators.neighbours.space is {space!r}. Set it to x, or landmarks_by to uniform."
        )
    return choose_landmarks(state, params.landmarks, context.seed % 2**32).vectors


@dataclass(frozen=True)
class PartKeys:
    """Keys of rows for the measurement: 0 for training, 1 for validation, -1 for other rows. Picklable."""

    apply: Callable[[pa.Table], pa.Table]

    def __call__(self, table: pa.Table) -> Int64:
        """Return the key (n,) of each row of a table."""
        index = self.apply(table)[SPLIT].combine_chunks().indices.to_numpy()
        return np.select([index == TRAIN, index == VALIDATION], [0, 1], -1).astype(np.int64)


def measure(operator: Split[Any], context: Context, executor: Executor) -> dict[str, float]:
    """Return ``mmd`` of a fitted split and ``mmd_random``, its root mean square over random splits of that
    size.

    The result is empty if a part has no rows or the kernel is degenerate. This is logged and is no error,
    because the methods that call this do not use the kernel to split.
    """
    from operators.splits.kernel import random_mmd
    from operators.splits.sharded import ParticipatingRows, draw_sample
    from operators.splits.start import generator

    params = operator.params
    columns = tuple(name for name in operator.requires if operator.rule_reads_features or name != FEATURES)
    taking = ParticipatingRows(context.shards, columns, PartKeys(operator.open_rule(context)))
    random = generator(context.seed % 2**32)
    drawn = draw_sample(executor, taking, int(random.integers(2**63)), params.resources)
    if not drawn.n:
        _log.info("operators.split: no row is split, so there is no MMD")
        return {}
    try:
        settings = settings_of(params, stored_landmarks(params, context))
        feature_map = settings.make_feature_map(drawn.X, int(random.integers(2**31)))
    except ValueError as error:
        _log.warning("operators.split: the rows are split, but their MMD is not reported: %s", error)
        return {}
    sizes, sums, squares = np.zeros(2, np.int64), np.zeros((2, feature_map.width)), 0.0
    centre = feature_map.features(drawn.X).mean(axis=0, dtype=np.float64)
    for count, total, square in executor.map(
        partial(_sums, taking, feature_map, centre), taking.shards, resources=params.resources
    ):
        sizes += count
        sums += total
        squares += square
    if not sizes.all():
        part = PARTS[VALIDATION if sizes[0] else TRAIN]
        _log.info("operators.split: the part %r has no rows, so there is no MMD", part)
        return {}
    n, apart = int(sizes.sum()), sums[1] / sizes[1] - sums[0] / sizes[0]
    off = sums.sum(axis=0) / n - centre
    scatter = squares - n * float(off @ off)
    return {
        "mmd": float(np.linalg.norm(apart)),
        "mmd_random": random_mmd(scatter, n, int(sizes[1])),
    }


def _sums(taking: Any, feature_map: Any, centre: Float64, shard: int) -> tuple[Int64, Any, float]:
    """Return numbers (2,) and sums of phi (2, width) of both parts, and the sum of |phi - centre|^2."""
    from operators.splits.in_memory import totals
    from operators.threads import limit_threads

    rows = taking.read(shard)
    masks = np.stack([rows.keys == part for part in (0, 1)])
    if not len(rows.keys):
        return masks.sum(axis=1), np.zeros((2, feature_map.width)), 0.0
    with limit_threads(1):
        phi = feature_map.features(taking.features(shard, rows.places), rows.row_ids)
        return masks.sum(axis=1), totals(phi, masks), float(np.square(phi - centre).sum())
