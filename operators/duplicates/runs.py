"""Runs of shards: files over shards of like size are made one as shards come (Bentley and Saxe 1980).

Trees of vectors and pairs of rows are kept like this: there are few of them after any number of increments,
and each row is written anew only as often as the rows double.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple


class Run(NamedTuple):
    """A run of shards: first row of the first and of the last one, and how many rows of them there are."""

    first: int
    last: int
    rows: int

    def name(self, kind: str) -> str:
        """Return the name, without ending, of a file or folder of this run."""
        return f"{kind}-{self.first:015d}-{self.last:015d}-{self.rows}"

    @classmethod
    def of(cls, path: Path) -> Run:
        """Return the run that a file or a folder is named by."""
        return cls(*(int(part) for part in path.name.removesuffix(".npy").split("-")[1:]))


def choose_runs(known: Sequence[Run], new: Sequence[Run], largest: int) -> list[Run]:
    """Return the runs that files are to cover, in the order of their rows, each at least twice the next one.

    A run is made one with the next unless it is twice as large or both together have more than ``largest``
    rows. So each row is in a new file only as often as the rows double.

    >>> [run.rows for run in choose_runs([Run(0, 0, 400)], [Run(400, 400, 100), Run(500, 500, 60)], 1000)]
    [400, 160]
    """
    runs = list(known)
    for run in new:
        runs.append(run)
        while len(runs) > 1 and runs[-2].rows < 2 * runs[-1].rows <= 2 * (largest - runs[-2].rows):
            later = runs.pop()
            runs[-1] = Run(runs[-1].first, later.last, runs[-1].rows + later.rows)
    return runs
