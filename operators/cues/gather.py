"""The sample on which ``cues`` is fitted, drawn over shards by a hash of the row id.

Three passes: count the classes, find the hash of the last row that is drawn of each class among few
candidates, and let every shard put its drawn rows into a scratch folder. The driver sees counts and at most a
few times as many hashes as the sample has rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import rmtree

import numpy as np
import numpy.typing as npt

from operators.base import FEATURES, LABEL, ROW_ID, Context, Executor, OperatorError, ShardReader
from operators.columns import vectors_to_numpy
from operators.cues.models.draws import candidate_limits, exact_limits, sample_hashes, sample_quotas
from operators.cues.params import CueWords
from operators.cues.words.mentions import Mentions
from operators.cues.words.shard_texts import TEXT_ROWS, read_mentions, text_file, write_texts
from operators.hashing import END, Hashes

SLACK = 1.2
MAX_VALUES = 32_000_000
"""Feature values of the sample, 128 MB: above 640 features fewer than 50,000 rows are drawn."""

HashLimits = Sequence[int]


@dataclass(frozen=True)
class SampledRows:
    """Rows of the sample in the order of their ids: features (n, d) float32, labels (n,), ids (n,).

    ``mentions`` (n, words) says which rows contain each word that the recipe names.
    """

    X: npt.NDArray[np.float32]
    y: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int64]
    mentions: Mentions = field(default_factory=lambda: np.zeros((0, 0), np.bool_))


def count_rows(context: Context, executor: Executor, n_classes: int) -> list[int]:
    """Return the rows of each class in all shards."""
    total = np.zeros(n_classes, np.int64)
    for counts in executor.map(partial(_count, context.shards, n_classes), _shards(context)):
        total += counts
    found: list[int] = total.tolist()
    return found


def rows_that_fit(n_features: int, max_rows: int) -> int:
    """Return the rows of the sample, so that it holds at most ``MAX_VALUES`` values."""
    return max(min(max_rows, MAX_VALUES // max(n_features, 1)), 1)


@contextmanager
def drawn_sample(
    context: Context,
    executor: Executor,
    counts: Sequence[int],
    max_rows: int,
    words: Sequence[CueWords] = (),
    texts: Sequence[str] = (),
) -> Iterator[tuple[Path, ...]]:
    """Draw the sample and yield the files with its rows, in the order of the rows; they are removed at the
    end.

    Parameters
    ----------
    words
        Sets of words that the recipe names: the files say which rows contain them.
    texts
        Columns of texts, which are kept for some of the rows beside the files.

    """
    quotas = sample_quotas(counts, max_rows)
    limits = _limits(context, executor, counts, quotas)
    folder = context.state / "sample"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        wanted = TextRequest(tuple(words), tuple(texts), TEXT_ROWS / max(sum(quotas), 1))
        put = partial(_write_drawn_rows, context.shards, context.seed, limits, folder, wanted)
        shards = sorted(context.shards.shards, key=lambda shard: shard.first_row)
        order = [shard.index for shard in shards]
        paths = [folder / f"{s}.npz" for s, n in zip(order, executor.map(put, order), strict=True) if n]
        yield tuple(paths)
    finally:
        rmtree(folder, ignore_errors=True)


def read_sample(paths: Sequence[Path], n_features: int) -> SampledRows:
    """Read what the shards have put down.

    Raises
    ------
    OperatorError
        Shards have vectors of different lengths.

    """
    X, y, ids = [np.empty((0, n_features), np.float32)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    mentions: list[Mentions] = []
    for path in paths:
        with np.load(path, allow_pickle=False) as stored:
            X.append(stored["X"])
            y.append(stored["y"])
            ids.append(stored["ids"])
            mentions.append(stored["mentions"])
    widths = sorted({part.shape[1] for part in X[1:]})
    if len(widths) > 1:
        raise OperatorError(
            f"operators.cues: the feature vectors of some shards have {widths[0]} entries, those of others "
            f"{widths[1]}. Run the operator that makes the features again."
        )
    rows = np.concatenate(X[1:] or X), np.concatenate(y), np.concatenate(ids)
    return SampledRows(*rows, np.concatenate(mentions)) if mentions else SampledRows(*rows)


def _limits(context: Context, executor: Executor, counts: Sequence[int], quotas: Sequence[int]) -> HashLimits:
    """Return the hash up to which the rows of each class are drawn."""
    if list(quotas) == list(counts):
        return [END - 1] * len(counts)
    slack = SLACK
    while True:
        candidates: dict[int, list[Hashes]] = {}
        limits = candidate_limits(counts, quotas, slack)
        for found in executor.map(partial(_hashes, context.shards, context.seed, limits), _shards(context)):
            for index, hashes in found.items():
                candidates.setdefault(index, []).append(hashes)
        exact = exact_limits({i: np.concatenate(parts) for i, parts in candidates.items()}, quotas)
        if exact is not None:
            return exact
        slack *= 2


def _shards(context: Context) -> range:
    return range(len(context.shards.shards))


def _count(reader: ShardReader, n_classes: int, shard: int) -> npt.NDArray[np.int64]:
    return np.bincount(reader.read(shard, [LABEL])[LABEL].to_numpy(), minlength=n_classes).astype(np.int64)


def _drawn(y: npt.NDArray[np.int64], hashes: Hashes, limits: HashLimits) -> npt.NDArray[np.bool_]:
    """Return which rows (n,) have a hash up to the limit of their class; a class with limit -1 has none."""
    last = np.array([max(limit, 0) for limit in limits], np.uint64)
    some = np.array([limit >= 0 for limit in limits])
    return np.asarray(some[y] & (hashes <= last[y]))


def _hashes(reader: ShardReader, seed: int, limits: HashLimits, shard: int) -> dict[int, Hashes]:
    table = reader.read(shard, [LABEL])
    y, hashes = table[LABEL].to_numpy().astype(np.int64), sample_hashes(table[ROW_ID].to_numpy(), seed)
    drawn = _drawn(y, hashes, limits)
    return {int(index): hashes[drawn & (y == index)] for index in np.unique(y[drawn])}


@dataclass(frozen=True)
class TextRequest:
    """The parts of texts that are read: words to look for, columns to keep, and the share of rows."""

    words: tuple[CueWords, ...] = ()
    texts: tuple[str, ...] = ()
    share: float = 1.0


def _write_drawn_rows(
    reader: ShardReader, seed: int, limits: HashLimits, folder: Path, wanted: TextRequest, shard: int
) -> int:
    """Write the drawn rows of a shard; return how many they are."""
    table = reader.read(shard, [FEATURES, LABEL])
    y, ids = table[LABEL].to_numpy().astype(np.int64), table[ROW_ID].to_numpy()
    drawn = np.flatnonzero(_drawn(y, sample_hashes(ids, seed), limits))
    if len(drawn):
        X = vectors_to_numpy(table.take(drawn)[FEATURES]).astype(np.float32)
        folder.mkdir(parents=True, exist_ok=True)  # hosts without a common disk exchange files alone
        mentions = read_mentions(reader, shard, ids[drawn], wanted.words)
        if wanted.texts:
            file = text_file(folder / f"{shard}.npz")
            write_texts(reader, shard, ids[drawn], wanted.texts, wanted.share, seed, file)
        np.savez(folder / f"{shard}.npz", X=X, y=y[drawn], ids=ids[drawn], mentions=mentions)
    return len(drawn)
