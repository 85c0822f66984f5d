"""Constrained kernel k-means over shards: features and gains stay in files, sums and counts travel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from operators.arrays import Float64, Mask
from operators.base import Executor, Resources
from operators.hashing import END, Hashes
from operators.splits.drawing import Taking
from operators.splits.features import FeatureMap
from operators.splits.hashing import Ints, Search
from operators.splits.in_memory import project, scatter_of, totals
from operators.splits.kernel import Chosen
from operators.splits.ranks import find_ends, order_keys
from operators.splits.selection import Quotas

LAST = np.iinfo(np.int64).max


class Cut(NamedTuple):
    """Per stratum (g,): rows with a gain key below ``ends`` are taken, of those at it ids below ``ties``."""

    names: Ints
    ends: Hashes
    ties: Ints

    def mask(self, keys: Ints, gain: Float64, row_ids: Ints) -> Mask:
        """(n,) validation rows; none of a stratum that is not in ``names``, as new rows may bring."""
        place = np.minimum(np.searchsorted(self.names, keys), len(self.names) - 1)
        ordered, end = order_keys(gain), self.ends[place]
        found: Mask = (ordered < end) | ((ordered == end) & (row_ids < self.ties[place]))
        known: Mask = self.names[place] == keys
        return known & found


@dataclass(frozen=True)
class Files:
    """Files with the features, keys and gains of each shard. It can be pickled."""

    folder: Path
    taking: Taking

    def write(self, by: FeatureMap, shard: int) -> tuple[int, Float64, float]:
        """Compute and store the features; rows, sum of phi, and sum of |phi - mean of the shard|^2."""
        rows = self.taking.read(shard)
        X = self.taking.features(shard, rows.places)
        with threadpool_limits(limits=1):
            phi = by.features(X, rows.row_ids) if len(X) else np.empty((0, by.width), np.float32)
            total = totals(phi, np.ones((1, len(phi)), bool))[0]
        for name, values in (("phi", phi), ("keys", rows.keys), ("ids", rows.row_ids)):
            self._save(name, shard, values)
        return len(phi), total, scatter_of(phi, total)

    def load(self, name: str, shard: int) -> npt.NDArray[Any]:
        """Map a stored array into memory."""
        found: npt.NDArray[Any] = np.load(self._path(name, shard), mmap_mode="r")
        return found

    def gains(self, direction: Float64, offset: float, names: Ints, shard: int) -> tuple[Ints, Ints]:
        """Store each row's gain; (2, g) counts of negative and of positive ones in each stratum."""
        with threadpool_limits(limits=1):
            gain = project(self.load("phi", shard), self.load("ids", shard), direction, offset)
        self._save("gain", shard, gain)
        place = np.searchsorted(names, self.load("keys", shard))
        below, above = (np.bincount(place[side], minlength=len(names)) for side in (gain < 0, gain > 0))
        return below, above

    def ranked(self, names: Ints, shard: int) -> tuple[Ints, Hashes]:
        """Each row twice, under the place of its stratum for the straight labeling, and g + place for the
        swapped one: places and gain keys.
        """
        place, gain = np.searchsorted(names, self.load("keys", shard)), self.load("gain", shard)
        both = np.concatenate([gain, -gain])
        return np.concatenate([place, place + len(names)]), order_keys(both)

    def tied(self, names: Ints, ends: Hashes, shard: int) -> tuple[Ints, Hashes]:
        """Return :meth:`ranked` with row ids for gain keys, and place -1 for rows not at their end (2 g,)."""
        place, ordered = self.ranked(names, shard)
        ids = np.asarray(self.load("ids", shard)).astype(np.uint64)
        return np.where(ordered == ends[place], place, -1), np.concatenate([ids, ids])

    def sums(self, cuts: Sequence[Cut], shard: int) -> tuple[Float64, Ints]:
        """Sum of phi, and rows, under the straight and the swapped cut."""
        keys, gain, ids = (np.asarray(self.load(name, shard)) for name in ("keys", "gain", "ids"))
        masks = np.stack([cut.mask(keys, sign * gain, ids) for cut, sign in zip(cuts, (1, -1), strict=True)])
        with threadpool_limits(limits=1):
            return totals(self.load("phi", shard), masks), masks.sum(axis=1)

    def _path(self, name: str, shard: int) -> Path:
        return self.folder / f"{name}-{shard}.npy"

    def _save(self, name: str, shard: int, values: npt.NDArray[Any]) -> None:
        # Renamed, as a task that Ray runs twice must not write under a reader.
        path = self._path(name, shard)
        half = path.with_suffix(f".{np.random.default_rng().integers(2**63):x}")
        with half.open("wb") as file:
            np.save(file, values)
        half.replace(path)


class ShardedRows:
    """Rows over shards as :mod:`operators.splits.kernel` sees them."""

    def __init__(
        self, executor: Executor, files: Files, by: FeatureMap, quotas: Quotas, resources: Resources
    ) -> None:
        self._executor, self._files, self._quotas = executor, files, quotas
        self._shards, self._resources = files.taking.shards, resources
        self.n, self.scatter, self.total = 0, 0.0, np.zeros(by.width)
        for n, total, scatter in self._map(partial(files.write, by)):
            if n and self.n:
                # Chan, Golub, LeVeque: scatter of two parts together.
                apart = total / n - self.total / self.n
                self.scatter += float(apart @ apart) * n * self.n / (n + self.n)
            self.scatter += scatter
            self.total += total
            self.n += n

    def inner(self, a: Float64, b: Float64) -> float:
        """Return <a, b> in the space of phi."""
        return float(a @ b)

    def choose(self, direction: Float64, offset: float) -> tuple[Chosen[Cut], Chosen[Cut]]:
        """Choose the validation rows of both labelings."""
        quotas = self._quotas
        negative = np.zeros((2, len(quotas.names)), np.int64)
        for counts in self._map(partial(self._files.gains, direction, offset, quotas.names)):
            negative += counts
        cuts = self._cuts(np.clip(negative, quotas.low, quotas.high).ravel())
        sums, sizes = np.zeros((2, len(self.total))), np.zeros(2, np.int64)
        for found, counts in self._map(partial(self._files.sums, cuts)):
            sums += found
            sizes += counts
        straight, swapped = (Chosen(s, int(n), cut) for s, n, cut in zip(sums, sizes, cuts, strict=True))
        return straight, swapped

    def _cuts(self, wanted: Ints) -> list[Cut]:
        """Gains, and among equals row ids, that bound the ``wanted`` (2 g,) rows; straight and swapped."""
        names = self._quotas.names
        found = self._find(
            partial(self._files.ranked, names),
            [Search(place, rank) for place, rank in enumerate(wanted.tolist())],
        )
        ends, ties = np.empty(len(wanted), np.uint64), np.zeros(len(wanted), np.int64)
        for place, end in enumerate(found):
            value = end.low if isinstance(end, Search) else end
            ends[place], ties[place] = (value, 0) if value < END else (END - 1, LAST)
        lacking = {place: end.rank for place, end in enumerate(found) if isinstance(end, Search)}
        if lacking:
            tied = partial(self._files.tied, names, ends)
            found = self._find(tied, [Search(place, rank) for place, rank in lacking.items()])
            ties[list(lacking)] = [end if isinstance(end, int) else LAST for end in found]
        pairs = zip(np.split(ends, 2), np.split(ties, 2), strict=True)
        return [Cut(names, end, tie) for end, tie in pairs]

    def _find(self, keyed: Any, searches: list[Search]) -> list[int | Search]:
        return find_ends(self._executor, self._shards, keyed, searches, self._resources)

    def _map(self, work: Any) -> Any:
        return self._executor.map(work, self._shards, resources=self._resources)
