"""Constrained kernel k-means over shards: workers keep features and gains in files and return sums and
counts.

:class:`ParticipatingRows` selects the rows that are split, and :func:`draw_sample` draws the same sample of
them that the estimator draws in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Float32, Float64, Int64, Mask
from operators.base import FEATURES, ROW_ID, Executor, Resources, ShardReader
from operators.columns import vectors_to_numpy
from operators.hashing import END, Hashes, order_keys, row_hashes
from operators.splits.features import FeatureMap
from operators.splits.hashed_split import Search, find_ends
from operators.splits.in_memory import project, scatter_of, totals
from operators.splits.kernel import ValidationRows
from operators.splits.selection import Quotas
from operators.splits.start import SAMPLE
from operators.threads import limit_threads


@dataclass(frozen=True)
class ParticipatingRows:
    """The rows that are split, of all rows of the shards. Picklable."""

    reader: ShardReader
    columns: tuple[str, ...]
    """Columns that ``keys_of`` reads."""
    keys_of: Callable[[pa.Table], Int64]
    """Function of a table that returns the key (n,) of each row: its stratum, or -1 if it takes no part."""

    @property
    def shards(self) -> range:
        """Numbers of all shards."""
        return range(len(self.reader.shards))

    def read(self, shard: int) -> KeyedRows:
        """Read ids, keys and places of the participating rows of a shard."""
        table = self.reader.read(shard, self.columns)
        keys = self.keys_of(table)
        return KeyedRows(table[ROW_ID].to_numpy()[keys >= 0], keys[keys >= 0], np.flatnonzero(keys >= 0))

    def features(self, shard: int, places: Int64) -> Float32:
        """Read the features (m, d) of the rows at ``places`` (m,) of a shard."""
        return vectors_to_numpy(self.reader.read(shard, [FEATURES])[FEATURES])[places]


class KeyedRows(NamedTuple):
    """Participating rows of one shard; all three are (m,) int64."""

    row_ids: Int64
    keys: Int64
    places: Int64
    """Positions in the shard."""


class RowSample(NamedTuple):
    """A sample of rows, in the order of their ids.

    Attributes
    ----------
    X : (s, d) features.
    keys, row_ids : (s,) int64.
    n : number of rows that the sample is drawn from.
    """

    X: Float32
    keys: Int64
    n: int
    row_ids: Int64


def draw_sample(executor: Executor, taking: ParticipatingRows, seed: int, resources: Resources) -> RowSample:
    """Draw the rows with the smallest hashes, at most 5,000, in two passes over the keys."""
    smallest: Hashes = np.empty(0, np.uint64)
    n = 0
    for count, hashes in executor.map(partial(_hashes, taking, seed), taking.shards, resources=resources):
        n += count
        smallest = np.sort(np.concatenate([smallest, hashes]))[:SAMPLE]
    if not n:
        return RowSample(np.empty((0, 0), np.float32), np.empty(0, np.int64), 0, np.empty(0, np.int64))
    found = executor.map(partial(_below, taking, seed, int(smallest[-1])), taking.shards, resources=resources)
    pieces = [piece for piece in found if len(piece[0])]
    row_ids, keys, X = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(row_ids)
    return RowSample(X[order], keys[order], n, row_ids[order])


def _hashes(taking: ParticipatingRows, seed: int, shard: int) -> tuple[int, Hashes]:
    hashes = row_hashes(taking.read(shard).row_ids, seed)
    if len(hashes) > SAMPLE:
        hashes = np.partition(hashes, SAMPLE - 1)
    return len(hashes), hashes[:SAMPLE]


def _below(taking: ParticipatingRows, seed: int, last: int, shard: int) -> tuple[Int64, Int64, Float32]:
    rows = taking.read(shard)
    mine = row_hashes(rows.row_ids, seed) <= np.uint64(last)
    if not mine.any():
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 0), np.float32)
    return rows.row_ids[mine], rows.keys[mine], taking.features(shard, rows.places[mine])


MAX_ROW_ID = np.iinfo(np.int64).max
"""Limit of row ids below which all rows lie."""


class GainThresholds(NamedTuple):
    """Thresholds of the gain that select the validation rows of each of g strata."""

    names: Int64
    """(g,) strata, ascending."""
    ends: Hashes
    """(g,) sort keys (:func:`operators.splits.hashed_split.order_keys`): rows of smaller gain are taken."""
    ties: Int64
    """(g,) row ids: of the rows whose gain is at the end, those with a smaller id are taken."""

    def mask(self, keys: Int64, gain: Float64, row_ids: Int64) -> Mask:
        """Return the mask (n,) of validation rows. Strata that are not in ``names`` have none."""
        place = np.minimum(np.searchsorted(self.names, keys), len(self.names) - 1)
        ordered, end = order_keys(gain), self.ends[place]
        found: Mask = (ordered < end) | ((ordered == end) & (row_ids < self.ties[place]))
        known: Mask = self.names[place] == keys
        return known & found


@dataclass(frozen=True)
class RowFiles:
    """Files with the features, keys, row ids and gains of the participating rows of each shard. Picklable."""

    folder: Path
    taking: ParticipatingRows

    def write(self, feature_map: FeatureMap, shard: int) -> tuple[int, Float64, float]:
        """Compute and store the features of a shard.

        Returns the number of rows, the sum of phi (width,), and the sum of |phi - mean of the shard|^2.
        """
        rows = self.taking.read(shard)
        X = self.taking.features(shard, rows.places)
        with limit_threads(1):
            phi = (
                feature_map.features(X, rows.row_ids)
                if len(X)
                else np.empty((0, feature_map.width), np.float32)
            )
            total = totals(phi, np.ones((1, len(phi)), bool))[0]
        for name, values in (("phi", phi), ("keys", rows.keys), ("ids", rows.row_ids)):
            self._save(name, shard, values)
        return len(phi), total, scatter_of(phi, total)

    def load(self, name: str, shard: int) -> npt.NDArray[Any]:
        """Map a stored array into memory."""
        found: npt.NDArray[Any] = np.load(self._path(name, shard), mmap_mode="r")
        return found

    def gains(self, direction: Float64, offset: float, names: Int64, shard: int) -> tuple[Int64, Int64]:
        """Store the gain of each row; return the numbers (g,) of negative and of positive gains per
        stratum.
        """
        with limit_threads(1):
            gain = project(self.load("phi", shard), self.load("ids", shard), direction, offset)
        self._save("gain", shard, gain)
        place = np.searchsorted(names, self.load("keys", shard))
        below, above = (np.bincount(place[side], minlength=len(names)) for side in (gain < 0, gain > 0))
        return below, above

    def ranked(self, names: Int64, shard: int) -> tuple[Int64, Hashes]:
        """Return places and sort keys of the gains (2 m,) for both labelings.

        The first half has the place of each row's stratum in ``names`` (g,) and its gain, the second half
        g + place and the negative gain.
        """
        place, gain = np.searchsorted(names, self.load("keys", shard)), self.load("gain", shard)
        both = np.concatenate([gain, -gain])
        return np.concatenate([place, place + len(names)]), order_keys(both)

    def tied(self, names: Int64, ends: Hashes, shard: int) -> tuple[Int64, Hashes]:
        """Return places as :meth:`ranked` does, and row ids as sort keys, to order rows of equal gain.

        The place is -1 for rows whose gain is not at the end of their stratum, ``ends`` (2 g,).
        """
        place, ordered = self.ranked(names, shard)
        ids = np.asarray(self.load("ids", shard)).astype(np.uint64)
        return np.where(ordered == ends[place], place, -1), np.concatenate([ids, ids])

    def sums(self, thresholds: Sequence[GainThresholds], shard: int) -> tuple[Float64, Int64]:
        """Return the sums of phi (2, width) and numbers (2,) of the rows that each labeling would take."""
        keys, gain, ids = (np.asarray(self.load(name, shard)) for name in ("keys", "gain", "ids"))
        masks = np.stack(
            [limits.mask(keys, sign * gain, ids) for limits, sign in zip(thresholds, (1, -1), strict=True)]
        )
        with limit_threads(1):
            return totals(self.load("phi", shard), masks), masks.sum(axis=1)

    def _path(self, name: str, shard: int) -> Path:
        return self.folder / f"{name}-{shard}.npy"

    def _save(self, name: str, shard: int, values: npt.NDArray[Any]) -> None:
        # A task that Ray runs a second time must not overwrite a file that another task has mapped.
        path = self._path(name, shard)
        half = path.with_name(f".{name}-{shard}.{np.random.default_rng().integers(2**63):x}")
        with half.open("wb") as file:
            np.save(file, values)
        half.replace(path)


class ShardedRows:
    """Rows over shards as :mod:`operators.splits.kernel` sees them."""

    def __init__(
        self,
        executor: Executor,
        files: RowFiles,
        feature_map: FeatureMap,
        quotas: Quotas,
        resources: Resources,
    ) -> None:
        self._executor, self._files, self._quotas = executor, files, quotas
        self._shards, self._resources = files.taking.shards, resources
        self.n, self.scatter, self.total = 0, 0.0, np.zeros(feature_map.width)
        for n, total, scatter in self._map(partial(files.write, feature_map)):
            if n and self.n:
                # Scatter of two parts together (Chan, Golub and LeVeque 1979).
                apart = total / n - self.total / self.n
                self.scatter += float(apart @ apart) * n * self.n / (n + self.n)
            self.scatter += scatter
            self.total += total
            self.n += n

    def inner(self, a: Float64, b: Float64) -> float:
        """Return <a, b> in the space of phi."""
        return float(a @ b)

    def choose(
        self, direction: Float64, offset: float
    ) -> tuple[ValidationRows[GainThresholds], ValidationRows[GainThresholds]]:
        """Choose the validation rows of both labelings."""
        quotas = self._quotas
        negative = np.zeros((2, len(quotas.names)), np.int64)
        for counts in self._map(partial(self._files.gains, direction, offset, quotas.names)):
            negative += counts
        thresholds = self._thresholds(np.clip(negative, quotas.low, quotas.high).ravel())
        sums, sizes = np.zeros((2, len(self.total))), np.zeros(2, np.int64)
        for found, counts in self._map(partial(self._files.sums, thresholds)):
            sums += found
            sizes += counts
        straight, swapped = (
            ValidationRows(s, int(n), thresholds)
            for s, n, thresholds in zip(sums, sizes, thresholds, strict=True)
        )
        return straight, swapped

    def _thresholds(self, wanted: Int64) -> list[GainThresholds]:
        """Return the thresholds of both labelings under which each stratum gives ``wanted`` (2 g,) rows."""
        names = self._quotas.names
        found = self._find(
            partial(self._files.ranked, names),
            [Search(place, rank) for place, rank in enumerate(wanted.tolist())],
        )
        ends, ties = np.empty(len(wanted), np.uint64), np.zeros(len(wanted), np.int64)
        for place, end in enumerate(found):
            value = end.low if isinstance(end, Search) else end
            ends[place], ties[place] = (value, 0) if value < END else (END - 1, MAX_ROW_ID)
        lacking = {place: end.rank for place, end in enumerate(found) if isinstance(end, Search)}
        if lacking:
            tied = partial(self._files.tied, names, ends)
            found = self._find(tied, [Search(place, rank) for place, rank in lacking.items()])
            ties[list(lacking)] = [end if isinstance(end, int) else MAX_ROW_ID for end in found]
        pairs = zip(np.split(ends, 2), np.split(ties, 2), strict=True)
        return [GainThresholds(names, end, tie) for end, tie in pairs]

    def _find(self, keyed: Any, searches: list[Search]) -> list[int | Search]:
        return find_ends(self._executor, self._shards, keyed, searches, self._resources)

    def _map(self, work: Any) -> Any:
        return self._executor.map(work, self._shards, resources=self._resources)
