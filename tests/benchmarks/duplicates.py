"""Near duplicates of texts: the kernel against datasketch and rensa's own deduplicator.

OMP_NUM_THREADS=1 python -m tests.benchmarks.duplicates [--large] [--write-readme]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from rensa import RMinHashDeduplicator

from operators.arrays import Ids
from operators.duplicates.minhash import N_HASHES, plain_text, shingles
from tests.benchmarks.harness import Row, figure, machine, measure, ratio, table, write_section
from tests.unit.operators.duplicates.on_texts import find_duplicates

README = Path(__file__).with_name("README.md")
SIZES, LARGE = (2_000, 20_000), (200_000,)
THRESHOLD, SHINGLE = 0.8, 8
OURS, RENSA, DATASKETCH = "ours", "rensa, RMinHashDeduplicator", "datasketch, MinHashLSH"
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


def main() -> None:
    """Run, print, and write the section if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--large", action="store_true", help="200,000 texts too")
    parser.add_argument("--write-readme", action="store_true")
    chosen = parser.parse_args()
    rows = [row for n in (*SIZES, *(LARGE if chosen.large else ())) for row in compare(n)]
    text = "\n\n".join([f"{machine(('numpy', 'rensa', 'datasketch'))}.", table(rows)])
    print(text)
    if chosen.write_readme:
        write_section(README, "duplicates", text)


if __name__ == "__main__":
    main()
