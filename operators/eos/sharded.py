"""EOS over shards: in every pass one task for each run of shards receives models and returns sums.

The plan fixes the runs of shards. Sums are formed within a run in the order of its shards and then over the
runs in their order, so that the number of workers changes no bit. Classes and restarts share their passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.base import LABEL, LOSS, ROW_ID, Executor, OperatorError, Resources, ShardReader
from operators.columns import vectors_to_numpy
from operators.eos.alpha import AlphaPoint, choose_alpha, effective_sample_size_curve, sample_size
from operators.eos.descent import Descent, Fit, best_of, from_sums
from operators.eos.kernel import WeightStatistics, collect_statistics, merged, random_rows, sample_hashes
from operators.eos.memory import SAMPLE, Rows
from operators.eos.params import EosParams
from operators.eos.state import EVERYONE, Scorer
from operators.hashing import END
from operators.threads import limit_threads

RUNS = 64
"""Largest number of tasks of a pass. Another number changes the last bits of sums."""
MIN_SAMPLE = 64
"""Smallest number of rows of each class in the sample."""
SPARE = 2
"""Candidates for the sample (rows with a hash below a limit) per row of the sample."""


@dataclass(frozen=True)
class Source:
    """Reads shards as rows. It can be pickled."""

    reader: ShardReader
    column: str
    """Name of the column with the features; :data:`LOSS` gives one number per row."""
    by_class: bool
    target: str
    """Kind of target of the learner: none, class or number (indicators of the classes)."""
    n_classes: int

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that are read."""
        return (self.column,) if self.target == "none" and not self.by_class else (self.column, LABEL)

    def rows(self, shard: int) -> tuple[Rows, npt.NDArray[np.integer]]:
        """Return the rows of a shard and the key of each row's model."""
        return self.parsed(self.reader.read(shard, self.columns))

    def parsed(self, table: Any) -> tuple[Rows, npt.NDArray[np.integer]]:
        """Return the rows of a table of :attr:`columns` and ``row_id``, and the key of each row's model."""
        values = table.column(self.column)
        X = values.to_numpy()[:, None] if self.column == LOSS else vectors_to_numpy(values)
        labels = table.column(LABEL).to_numpy() if LABEL in self.columns else None
        y = None
        if self.target != "none" and labels is not None:
            y = labels.astype(np.int64) if self.target == "class" else np.eye(self.n_classes)[labels]
        keys = labels if self.by_class and labels is not None else np.full(len(X), EVERYONE)
        return Rows(X, y, np.ones(len(X)), table.column(ROW_ID).to_numpy()), keys

    def each(self, shards: Sequence[int]) -> Iterator[tuple[Rows, npt.NDArray[np.integer]]]:
        """Yield the rows of the shards that have any."""
        for shard in shards:
            rows, keys = self.rows(shard)
            if len(rows):
                yield rows, keys


@dataclass(frozen=True)
class Request:
    """A model whose statistics a pass collects."""

    key: int
    model: Any
    alpha: float
    draw: int | None


def runs_of(n_shards: int) -> list[range]:
    """Divide shards into at most :data:`RUNS` runs of neighbours, of sizes that differ by at most one."""
    edges = np.linspace(0, n_shards, min(RUNS, n_shards) + 1).astype(int).tolist()
    return [range(first, last) for first, last in pairwise(edges)]


@dataclass(frozen=True)
class Passes:
    """Passes over the rows of all shards."""

    source: Source
    executor: Executor
    resources: Resources

    @property
    def runs(self) -> list[range]:
        """The runs of :func:`runs_of`."""
        return runs_of(len(self.source.reader.shards))

    def collect(self, requests: Sequence[Request]) -> list[WeightStatistics]:
        """Make one pass: return the statistics of each request over all rows of its class.

        The sums of a run are merged as they arrive, so that those of two runs are in memory at most.
        """
        found: list[WeightStatistics | None] = [None] * len(requests)
        work = partial(_statistics_of_shards, self.source, list(requests))
        for statistics in self.executor.map(work, self.runs, resources=self.resources):
            found = [_merged_pair(*pair) for pair in zip(found, statistics, strict=True)]
        return [merged([] if one is None else [one]) for one in found]

    def sample(self, learner: Any, counts: Mapping[int, int], seed: int) -> dict[int, Rows]:
        """Draw random rows of each key; the draw does not depend on shards.

        They are about :data:`SAMPLE` in all, or more where the learner's model needs more rows of a class:
        a Gaussian needs a few times as many as features, so that the sample has the size of the models.
        """
        size = max(MIN_SAMPLE, SAMPLE // max(len(counts), 1))
        samples = self._draw(counts, size, seed)
        starts = (learner.start(rows.X, rows.y, rows.prior, seed) for rows in samples.values())
        wanted = max((sample_size(start) for start in starts), default=0)
        if wanted > size and max(counts.values()) > size:
            return self._draw(counts, wanted, seed)
        return samples

    def _draw(self, counts: Mapping[int, int], size: int, seed: int) -> dict[int, Rows]:
        limits = {key: min(1.0, SPARE * size / max(n, 1)) for key, n in counts.items()}
        parts: dict[int, list[Rows]] = {key: [] for key in counts}
        work = partial(_candidates, self.source, limits, seed)
        for run in self.executor.map(work, self.runs, resources=self.resources):
            for key, rows in run.items():
                parts[key].append(rows)
        return {key: _sampled(joined, size, seed) for key, joined in parts.items() if joined}

    def count_outliers(self, scorer: Scorer, threshold: float) -> int:
        """Make one pass: count the rows whose weight is below ``threshold``."""
        work = partial(_count, self.source, scorer, float(np.log(threshold)))
        return sum(self.executor.map(work, self.runs, resources=self.resources))


def _merged_pair(one: WeightStatistics | None, other: WeightStatistics | None) -> WeightStatistics | None:
    parts = [part for part in (one, other) if part is not None]
    return merged(parts) if parts else None


def _statistics_of_shards(
    source: Source, requests: list[Request], shards: Sequence[int]
) -> list[WeightStatistics | None]:
    found: list[list[WeightStatistics]] = [[] for _ in requests]
    with limit_threads(1):  # sums have one order
        for rows, keys in source.each(shards):
            for parts, request in zip(found, requests, strict=True):
                parts += _answer(request, rows, keys)
        return [merged(parts) if parts else None for parts in found]


def _answer(request: Request, rows: Rows, keys: npt.NDArray[np.integer]) -> list[WeightStatistics]:
    mine = rows if request.key == EVERYONE else rows.take(np.flatnonzero(keys == request.key))
    if not len(mine):
        return []
    return [collect_statistics(request.model, mine.X, mine.y, mine.starting(request.draw), request.alpha)]


def _candidates(
    source: Source, limits: Mapping[int, float], seed: int, shards: Sequence[int]
) -> dict[int, Rows]:
    found: dict[int, list[Rows]] = {key: [] for key in limits}
    for rows, keys in source.each(shards):
        share = sample_hashes(rows.ids, seed) / float(END)
        for key, limit in limits.items():
            places = np.flatnonzero((keys == key) & (share <= limit))
            if len(places):
                found[key].append(rows.take(places))
    return {key: _joined(parts) for key, parts in found.items() if parts}


def _joined(parts: list[Rows]) -> Rows:
    y = None if parts[0].y is None else np.concatenate([part.y for part in parts if part.y is not None])
    X, prior, ids = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "prior", "ids")
    )
    return Rows(X, y, prior, ids)


def _sampled(parts: list[Rows], size: int, seed: int) -> Rows:
    rows = _joined(parts)
    return rows.take(np.sort(random_rows(rows.ids, size, seed)))


def _count(source: Source, scorer: Scorer, limit: float, shards: Sequence[int]) -> int:
    total = 0
    with limit_threads(1):  # sums have one order
        for rows, keys in source.each(shards):
            total += int((scorer.log_weights(rows.X, keys, rows.y) < limit).sum())
    return total


def choose(learner: Any, params: EosParams, seed: int, sample: Rows) -> list[AlphaPoint]:
    """Compute the curve of one class, as a task."""
    with limit_threads(1):  # sums have one order
        return effective_sample_size_curve(
            sample, learner, threshold=params.threshold, seed=seed, max_iter=params.max_iter
        )


def solve(
    passes: Passes, learner: Any, params: EosParams, samples: Mapping[int, Rows], seed: int
) -> tuple[dict[int, Fit], dict[int, list[AlphaPoint]]]:
    """Run all starts; return the fit with the lowest objective and the curve against alpha, by key.

    A key has no fit if alpha is to be chosen and its rows are too few for that.

    Raises
    ------
    OperatorError
        A loss is not finite, or rows and learner do not fit together.
    """
    keys = sorted(samples)
    try:
        work = partial(choose, learner, params, seed)
        found = passes.executor.map(work, [samples[key] for key in keys], resources=params.resources)
        curves = dict(zip(keys, found, strict=True))
        fitted = [key for key in keys if params.alpha != "auto" or curves[key]]
        descents = {key: _starts(learner, params, samples[key], curves[key], seed) for key in fitted}
        while going := [(key, one) for key in fitted for one in descents[key] if not one.done]:
            wanted = [Request(key, one.ahead, one.next_alpha, one.next_draw) for key, one in going]
            for (_, one), sums in zip(going, passes.collect(wanted), strict=True):
                one.advance(sums, from_sums)
    except ValueError as error:
        raise OperatorError(f"operators.eos: {error}") from error
    return {key: best_of(descents[key]) for key in fitted}, curves


def _starts(
    learner: Any, params: EosParams, sample: Rows, curve: list[AlphaPoint], seed: int
) -> list[Descent]:
    alpha = params.alpha
    if alpha == "auto":
        alpha = choose_alpha(curve, params.efficiency, params.most_flagged)
    found = []
    for index in range(params.n_init):
        model = learner.start(sample.X, sample.y, sample.prior, seed + index)
        draw = None if params.start == "uniform" and not index else seed + index
        found.append(Descent(model, alpha, params.tol, params.max_iter, draw))
    return found
