"""Near duplicates of texts: the kernel against datasketch and rensa's own deduplicator.

OMP_NUM_THREADS=1 python -m tests.benchmarks.duplicates [--large] [--write-readme]
OMP_NUM_THREADS=1 python -m tests.benchmarks.duplicates --operator 1000000 FOLDER
OMP_NUM_THREADS=1 python -m tests.benchmarks.duplicates --increment texts|KIND 1000000 10000 FOLDER
OMP_NUM_THREADS=1 python -m tests.benchmarks.duplicates --recall

The second command runs the operator's fit over shards of 100,000 texts in a folder, in one process. The
third adds new rows to old ones: texts, or vectors of a kind of ``VECTOR_KINDS``. The last compares what is
found with all pairs, on rows that do not suit the method.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rensa import RMinHashDeduplicator

from engine.execution.local_executor import LocalExecutor
from operators.arrays import Ids
from operators.base import FEATURES, ROW_ID, Context, DatasetDelta, ShardInfo
from operators.duplicates.adaptor import DuplicatesOperator
from operators.duplicates.minhash import N_HASHES, plain_text, shingles
from operators.duplicates.pairs import StoredPairs
from operators.duplicates.params import DuplicatesParams
from operators.duplicates.vectors import build_run, store_vectors, trees_to_build
from operators.memory import release_memory
from tests.benchmarks.harness import Row, figure, machine, measure, ratio, table, write_section
from tests.benchmarks.scale import memory, reset_peak
from tests.unit.operators.duplicates.hard_rows import TEXTS, VECTORS, nearest_older, older_by_sets
from tests.unit.operators.duplicates.on_texts import find_duplicates

README = Path(__file__).with_name("README.md")
SIZES, LARGE = (2_000, 20_000), (200_000,)
THRESHOLD, SHINGLE = 0.8, 8
OURS, RENSA, DATASKETCH = "ours", "rensa, RMinHashDeduplicator", "datasketch, MinHashLSH"
SHARD = 100_000
SLOWEST = 20_000
"""Texts beyond which datasketch is left out."""


def reviews(n: int, seed: int = 0) -> list[str]:
    """Texts of 20 to 200 words; every fifth is an older one in which one word in ten, or none, is another."""
    rng = np.random.default_rng(seed)
    words = np.array(["".join(rng.choice(list("etaoinshrdlu"), rng.integers(2, 10))) for _ in range(20_000)])
    frequency = 1.0 / np.arange(1, len(words) + 1)
    frequency /= frequency.sum()
    found: list[list[str]] = []
    for row in range(n):
        if row % 5 == 4:
            copy = list(found[rng.integers(row)])
            other = rng.random(len(copy)) < rng.choice([0.0, 0.01, 0.1])
            found.append(
                [rng.choice(words) if change else word for word, change in zip(copy, other, strict=True)]
            )
        else:
            found.append(rng.choice(words, rng.integers(20, 200), p=frequency).tolist())
    return [" ".join(one) for one in found]


def by_rensa(texts: Sequence[str]) -> Ids:
    """Rows that rensa drops."""
    kept = RMinHashDeduplicator(threshold=THRESHOLD, num_perm=N_HASHES, use_lsh=True).add_pairs(
        (str(row), shingles(plain_text(text), SHINGLE)) for row, text in enumerate(texts)
    )
    return np.flatnonzero(~np.array(kept))


def by_datasketch(texts: Sequence[str]) -> Ids:
    """Rows for which datasketch finds an older candidate whose estimate is at the threshold."""
    from datasketch import MinHash, MinHashLSH

    index, sketches, dropped = MinHashLSH(threshold=THRESHOLD, num_perm=N_HASHES), [], []
    for row, text in enumerate(texts):
        sketch = MinHash(num_perm=N_HASHES)
        sketch.update_batch([one.encode() for one in shingles(plain_text(text), SHINGLE)])
        if any(sketches[other].jaccard(sketch) >= THRESHOLD for other in index.query(sketch)):
            dropped.append(row)
        index.insert(row, sketch)
        sketches.append(sketch)
    return np.array(dropped, np.int64)


def by_us(texts: Sequence[str]) -> Ids:
    """Rows of which the kernel finds an older one."""
    return np.flatnonzero(find_duplicates(texts, THRESHOLD, SHINGLE).of >= 0)


def exact(texts: Sequence[str], rows: Ids) -> float:
    """Share of some rows that have an older row at the threshold, by the sets themselves."""
    sets = [set(shingles(plain_text(text), SHINGLE)) for text in texts]
    near = [
        any(len(sets[row] & older) >= THRESHOLD * len(sets[row] | older) for older in sets[:row])
        for row in rows
    ]
    return float(np.mean(near))


def compare(n: int) -> list[Row]:
    """Rows of the table for n texts."""
    texts = reviews(n)
    runs: dict[str, Callable[[], Any]] = {OURS: lambda: by_us(texts), RENSA: lambda: by_rensa(texts)}
    if find_spec("datasketch") and n <= SLOWEST:
        runs[DATASKETCH] = lambda: by_datasketch(texts)
    found = measure(runs, {OURS: 5, RENSA: 5, DATASKETCH: 1}, patience=60.0)
    rows: list[Row] = []
    for name, timing in found.items():
        row = {
            "texts": f"{n:,}",
            "method": name,
            "CPU s": str(timing),
            "texts a CPU s": figure(n / timing.median),
            "method / ours": ratio(timing.median / found[OURS].median),
            "found": f"{len(timing.result):,}",
            "also found by us": f"{np.isin(timing.result, found[OURS].result).mean():.4f}",
        }
        rows.append(row | ({"truly at .8": f"{exact(texts, timing.result):.4f}"} if n <= SIZES[0] else {}))
    return rows


@dataclass(frozen=True)
class TextShards:
    """Shards of texts in a folder: what the operator's fit asks of a reader."""

    folder: Path
    shards: tuple[ShardInfo, ...]

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return ``row_id`` and, where asked, a label of zeros."""
        info = self.shards[shard]
        ids = pa.array(np.arange(info.first_row, info.first_row + info.n_rows))
        return pa.table({ROW_ID: ids, **{name: np.zeros(info.n_rows, np.int32) for name in columns}})

    def read_source(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return the texts."""
        return pq.read_table(self.folder / self.shards[shard].path, columns=list(columns))


def write_texts(folder: Path, n: int) -> TextShards:
    """Write n texts in shards; every fifth of a shard is near an older one of it or of the first shard."""
    folder.mkdir(parents=True, exist_ok=True)
    first, shards = reviews(min(n, SHARD)), []
    for index, start in enumerate(range(0, n, SHARD)):
        rows = min(SHARD, n - start)
        texts = first[:rows] if not index else reviews(rows, index)
        texts[3::10] = [f"{text} x" for text in first[3:rows:10]] if index else texts[3::10]
        pq.write_table(pa.table({"text": texts}), folder / f"{index:05d}.parquet")
        shards.append(ShardInfo(index, f"{index:05d}.parquet", start, rows, 0))
    return TextShards(folder, tuple(shards))


def run_operator(n: int, folder: Path) -> None:
    """Run the operator's fit on n texts and print its CPU seconds, the peak of memory and what it found."""
    reader = write_texts(folder / "texts", n)
    (folder / "state").mkdir(exist_ok=True)
    operator = DuplicatesOperator(DuplicatesParams(columns=("text",)))
    release_memory()
    before, start = reset_peak() / 2**20, time.process_time()
    found = operator.fit(Context(reader, folder / "state"), LocalExecutor())
    seconds, peak = time.process_time() - start, memory("VmHWM") / 2**20
    size = sum(path.stat().st_size for path in (folder / "state").rglob("*.npy"))
    print(f"{machine(('numpy', 'rensa'))}.")
    print(
        f"{n:,} texts in shards of {SHARD:,}: {seconds:,.0f} CPU s, peak {peak:,.0f} MiB ({before:,.0f} at "
        f"the start), {size / n:,.0f} bytes of state a text, {found['duplicates']:,.0f} duplicates"
    )


@dataclass(frozen=True)
class VectorShards(TextShards):
    """Shards of unit vectors in a folder."""

    def read(self, shard: int, columns: Sequence[str]) -> pa.Table:
        """Return ``row_id`` and, where asked, the vectors."""
        info = self.shards[shard]
        table = pa.table({ROW_ID: np.arange(info.first_row, info.first_row + info.n_rows)})
        if not columns:
            return table
        X = np.load(self.folder / info.path)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
        return table.append_column(FEATURES, vectors)


def write_plain_texts(folder: Path, n: int) -> TextShards:
    """Write n texts in shards: those of :func:`reviews`, then texts of random words, which take less time."""
    folder.mkdir(parents=True, exist_ok=True)
    words = np.array(" ".join(reviews(2_000, 1)).split())
    shards = []
    for index, start in enumerate(range(0, n, SHARD)):
        rows, rng = min(SHARD, n - start), np.random.default_rng([2, index])
        lengths = rng.integers(20, 200, rows)
        drawn = words[rng.integers(0, len(words), lengths.sum())]
        cuts = np.cumsum(lengths)[:-1]
        texts = [" ".join(one) for one in np.split(drawn, cuts)] if index else reviews(rows)
        pq.write_table(pa.table({"text": texts}), folder / f"{index:05d}.parquet")
        shards.append(ShardInfo(index, f"{index:05d}.parquet", start, rows, 0))
    return TextShards(folder, tuple(shards))


def around_centres(rng: np.random.Generator, n: int, width: int) -> Any:
    """Vectors around 1,000 centres."""
    centres = np.random.default_rng(0).normal(size=(1_000, width))
    return centres[rng.integers(0, 1_000, n)] + 0.5 * rng.normal(size=(n, width))


def on_a_plane(rng: np.random.Generator, n: int, width: int) -> Any:
    """Vectors near a space of 10 dimensions, as those of networks are nearly."""
    plane = np.random.default_rng(0).normal(size=(10, width))
    return rng.normal(size=(n, 10)) @ plane + 0.1 * rng.normal(size=(n, width))


def evenly(rng: np.random.Generator, n: int, width: int) -> Any:
    """Vectors in all directions alike."""
    return rng.normal(size=(n, width))


def in_a_cone(rng: np.random.Generator, n: int, width: int) -> Any:
    """Vectors of which any two have the cosine .9, and which are spread alike beyond that."""
    return 3.0 * np.random.default_rng(0).normal(size=width) + rng.normal(size=(n, width))


VECTOR_KINDS: dict[str, tuple[Callable[[np.random.Generator, int, int], Any], int]] = {
    "centres-64": (around_centres, 64),
    "plane-384": (on_a_plane, 384),
    "even-32": (evenly, 32),
    "even-384": (evenly, 384),
    "cone-384": (in_a_cone, 384),
}


def write_vectors(kind: str, folder: Path, n: int) -> VectorShards:
    """Write n vectors of a kind in shards."""
    folder.mkdir(parents=True, exist_ok=True)
    draw, width = VECTOR_KINDS[kind]
    shards = []
    for index, start in enumerate(range(0, n, SHARD)):
        X = draw(np.random.default_rng([1, index]), min(SHARD, n - start), width)
        np.save(folder / f"{index:05d}.npy", X.astype(np.float32))
        shards.append(ShardInfo(index, f"{index:05d}.npy", start, len(X), 0))
    return VectorShards(folder, tuple(shards))


def write_grown(kind: str, folder: Path, n_old: int, n_new: int) -> TextShards:
    """Write old rows in shards of ``SHARD`` and the new ones in one shard; the new ones are the same for any
    number of old rows, of which the first shard is as well.
    """
    made = write_plain_texts(folder, n_old) if kind == "texts" else write_vectors(kind, folder, n_old)
    rng, path = np.random.default_rng(7), folder / f"new{'.parquet' if kind == 'texts' else '.npy'}"
    if kind != "texts":
        first = np.load(folder / made.shards[0].path)
        draw, width = VECTOR_KINDS[kind]
        X = draw(rng, n_new, width).astype(np.float32)
        X[4::5] = first[rng.integers(0, len(first), len(X[4::5]))] * np.float32(1.001)
        np.save(path, X)
    else:
        texts, first = (
            reviews(n_new, 1_000_003),
            pq.read_table(folder / made.shards[0].path)["text"].to_pylist(),
        )
        texts[3::10] = [f"{first[row]} y" for row in rng.integers(0, len(first), len(texts[3::10]))]
        pq.write_table(pa.table({"text": texts}), path)
    last = ShardInfo(len(made.shards), path.name, n_old, n_new, 0)
    return type(made)(folder, (*made.shards, last))


def run_increment(kind: str, n_old: int, n_new: int, folder: Path) -> None:
    """Fit on old rows, add new ones, and print the CPU seconds, the memory and the state of both."""
    reader = write_grown(kind, folder / "rows", n_old, n_new)
    old = type(reader)(reader.folder, reader.shards[:-1])
    params = DuplicatesParams(columns=("text",)) if kind == "texts" else DuplicatesParams()
    operator, executor = DuplicatesOperator(params), LocalExecutor()
    states = [folder / "before", folder / "after"]
    for state in states:
        state.mkdir()
    start = time.process_time()
    metrics = {"compared": float(n_old), "duplicates": 0.0}
    if kind == "texts":
        metrics = operator.fit(Context(old, states[0]), executor)
    else:  # the increment reads vectors and trees of old rows alone, so that these are not compared here
        for shard in old.shards:
            store_vectors(old, states[0], shard.index)
        for one in trees_to_build(states[0]):
            build_run(states[0], one)
    fitted = time.process_time() - start
    release_memory()
    before, start = reset_peak() / 2**20, time.process_time()
    delta = DatasetDelta(states[0], metrics, (len(old.shards),), rows_removed=False)
    found = operator.partial_fit(Context(reader, states[1]), delta, executor)
    seconds, peak = time.process_time() - start, memory("VmHWM") / 2**20
    row = {
        "compared": kind,
        "old rows": f"{n_old:,}",
        "new rows": f"{n_new:,}",
        "fit (vectors: trees) of the old, CPU s": figure(fitted),
        "increment, CPU s": figure(seconds),
        "peak above the start, MiB": f"{peak - before:,.0f}",
        "new duplicates": f"{found['duplicates'] - metrics['duplicates']:,.0f}",
    }
    print(f"{machine(('numpy', 'rensa'))}.\n{table([row])}")


def recall_of(found: Ids, truth: Ids) -> dict[str, str]:
    """Return the cells of a table of recall: both are the older row (n,) of each row, -1 for none."""
    near, told = truth >= 0, found >= 0
    return {
        "rows": f"{len(found):,}",
        "near an older row": f"{near.sum():,}",
        "of these found": f"{(near & told).sum() / max(near.sum(), 1):.4f}",
        "found though not near": f"{(told & ~near).sum():,}",
        "named the oldest": f"{(found == truth)[near].sum() / max(near.sum(), 1):.4f}",
    }


def run_recall(n: int = 1_000, seeds: int = 3) -> None:
    """Print the recall beside all pairs, for texts and vectors that do not suit the method."""
    rows = []
    for kind in TEXTS:
        pairs = []
        for seed in range(seeds):
            texts = kind(np.random.default_rng(seed), n)
            truth = np.array(older_by_sets(texts, THRESHOLD, SHINGLE))
            pairs.append((find_duplicates(texts, THRESHOLD, SHINGLE).of, truth))
        rows.append(
            {"compared": f"texts, {kind.__name__}"}
            | recall_of(*map(np.concatenate, zip(*pairs, strict=True)))
        )
    for make in VECTORS:
        pairs = []
        for seed in range(seeds):
            X = make(np.random.default_rng(seed)).astype(np.float32)
            pairs.append((of_vectors(X), np.array(nearest_older(X, 0.001))))
        rows.append(
            {"compared": f"vectors, {make.__name__}"}
            | recall_of(*map(np.concatenate, zip(*pairs, strict=True)))
        )
    print(f"{machine(('numpy', 'rensa'))}.\n{table(rows)}")


def of_vectors(X: Any) -> Ids:
    """Return the older row of each vector, by the operator over five shards."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        shards, start = [], 0
        for index, rows in enumerate(np.array_split(X, 5)):
            np.save(folder / f"{index}.npy", rows)
            shards.append(ShardInfo(index, f"{index}.npy", start, len(rows), 0))
            start += len(rows)
        (folder / "state").mkdir()
        context = Context(VectorShards(folder, tuple(shards)), folder / "state")
        DuplicatesOperator(DuplicatesParams()).fit(context, LocalExecutor())
        return StoredPairs(folder / "state").of_rows(np.arange(len(X))).of


def main() -> None:
    """Run, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--large", action="store_true", help="200,000 texts too")
    parser.add_argument("--write-readme", action="store_true")
    parser.add_argument("--operator", nargs=2, metavar=("TEXTS", "FOLDER"), help="the operator over shards")
    parser.add_argument(
        "--increment", nargs=4, metavar=("KIND", "OLD", "NEW", "FOLDER"), help="new rows beside old ones"
    )
    parser.add_argument("--recall", action="store_true", help="beside all pairs, on rows that do not suit")
    chosen = parser.parse_args()
    if chosen.recall:
        run_recall()
        return
    if chosen.increment:
        kind, n_old, n_new, folder = chosen.increment
        run_increment(kind, int(n_old), int(n_new), Path(folder))
        return
    if chosen.operator:
        run_operator(int(chosen.operator[0]), Path(chosen.operator[1]))
        return
    rows = [row for n in (*SIZES, *(LARGE if chosen.large else ())) for row in compare(n)]
    text = "\n\n".join([f"{machine(('numpy', 'rensa', 'datasketch'))}.", table(rows)])
    print(text)
    if chosen.write_readme:
        write_section(README, "duplicates", text)


if __name__ == "__main__":
    main()
