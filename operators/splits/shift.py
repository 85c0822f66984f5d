"""Distance of validation rows from training rows over shards, for methods that do not compute their own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Int64
from operators.base import FEATURES, SPLIT, Context, Executor, OperatorError
from operators.bounded_json import read_json
from operators.splits.hashing import TRAIN, VALIDATION
from operators.splits.params import ClusterParams, SplitParams

if TYPE_CHECKING:
    from operators.splits.adaptor import Split
    from operators.splits.start import SplitSettings


_log = logging.getLogger("rowsieve")


def settings_of(params: SplitParams, landmarks: npt.NDArray[Any] | None = None) -> SplitSettings:
    """Return the kernel's settings of a recipe.

    Test rows are taken out before, so h = validation / (1 - test).
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
    """Read landmarks from the graph of ``neighbours`` if the recipe asks for that; else return None."""
    if params.kernel != "rbf" or params.landmarks_by != "density":
        return None
    from operators.neighbours import choose_landmarks

    state = context.states["neighbours"]
    space = read_json(state / "graph.json")["params"]["space"]
    if space != "x":
        raise OperatorError(
            f"operators.split.landmarks_by: density needs a graph over the features; operators.neighbours "
            f"has one over {space!r}. Set operators.neighbours.space to x, or landmarks_by to uniform."
        )
    return choose_landmarks(state, params.landmarks, context.seed % 2**32).vectors


@dataclass(frozen=True)
class Parts:
    """0 for training rows, 1 for validation rows, -1 for others. Picklable."""

    apply: Callable[[pa.Table], pa.Table]

    def __call__(self, table: pa.Table) -> Int64:
        """Return the part (n,) of each row of a table."""
        index = self.apply(table)[SPLIT].combine_chunks().indices.to_numpy()
        return np.select([index == TRAIN, index == VALIDATION], [0, 1], -1).astype(np.int64)


def measure(operator: Split[Any], context: Context, executor: Executor) -> dict[str, float]:
    """Return ``mmd`` of a fitted split, and ``mmd_random``, its root mean square over random splits of that
    size.

    Nothing where a part is empty or the kernel cannot tell rows apart: a split needs no kernel.
    """
    from operators.splits.kernel import random_mmd
    from operators.splits.sharded import Taking, draw
    from operators.splits.start import generator

    params = operator.params
    columns = tuple(name for name in operator.requires if operator.rule_reads_features or name != FEATURES)
    taking = Taking(context.shards, columns, Parts(operator.open(context)))
    random = generator(context.seed % 2**32)
    drawn = draw(executor, taking, int(random.integers(2**63)), params.resources)
    if len(np.unique(drawn.keys)) < 2:
        return {}
    try:
        settings = settings_of(params, stored_landmarks(params, context))
        by = settings.map_of(drawn.X, int(random.integers(2**31)))
    except ValueError as error:
        _log.warning("operators.split: rows are split, but how far apart is not said: %s", error)
        return {}
    sizes, sums, squares = np.zeros(2, np.int64), np.zeros((2, by.width)), 0.0
    centre = by.features(drawn.X).mean(axis=0, dtype=np.float64)
    for count, total, square in executor.map(
        partial(_sums, taking, by, centre), taking.shards, resources=params.resources
    ):
        sizes += count
        sums += total
        squares += square
    n, apart = int(sizes.sum()), sums[1] / sizes[1] - sums[0] / sizes[0]
    off = sums.sum(axis=0) / n - centre
    scatter = squares - n * float(off @ off)
    return {
        "mmd": float(np.linalg.norm(apart)),
        "mmd_random": random_mmd(scatter, n, int(sizes[1])),
    }


def _sums(taking: Any, by: Any, centre: npt.NDArray[np.float64], shard: int) -> tuple[Int64, Any, float]:
    """Return the rows and the sums of phi of both parts, and the sum of |phi - centre|^2."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from operators.splits.in_memory import totals

    rows = taking.read(shard)
    masks = np.stack([rows.keys == part for part in (0, 1)])
    if not len(rows.keys):
        return masks.sum(axis=1), np.zeros((2, by.width)), 0.0
    with threadpool_limits(limits=1):
        phi = by.features(taking.features(shard, rows.places), rows.row_ids)
        return masks.sum(axis=1), totals(phi, masks), float(np.square(phi - centre).sum())
