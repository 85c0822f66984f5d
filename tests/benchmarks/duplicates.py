"""Near duplicates of texts: the kernel against datasketch and rensa's own deduplicator.

OMP_NUM_THREADS=1 python -m tests.benchmarks.duplicates [--large] [--write-readme]
OMP_NUM_THREADS=1 python -m tests.benchmarks.duplicates --operator 1000000 FOLDER

The second command runs the operator's fit over shards of 100,000 texts in a folder, in one process.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rensa import RMinHashDeduplicator

from engine.execution.local_executor import LocalExecutor
from operators.arrays import Ids
from operators.base import ROW_ID, Context, ShardInfo
from operators.duplicates.adaptor import DuplicatesOperator
from operators.duplicates.minhash import N_HASHES, plain_text, shingles
from operators.duplicates.params import DuplicatesParams
from operators.memory import release_memory
from tests.benchmarks.harness import Row, figure, machine, measure, ratio, table, write_section
from tests.benchmarks.scale import memory, reset_peak
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


def main() -> None:
    """Run, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--large", action="store_true", help="200,000 texts too")
    parser.add_argument("--write-readme", action="store_true")
    parser.add_argument("--operator", nargs=2, metavar=("TEXTS", "FOLDER"), help="the operator over shards")
    chosen = parser.parse_args()
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
