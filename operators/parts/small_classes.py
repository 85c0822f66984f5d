"""Classes that are too small to draw from, and the rows that are training rows for that reason.

A class may grow in an increment. Its new rows are drawn then as those of any class; the rows that were there
before stay training rows, so that no row changes its part. They are told by their identity, not by their row
ids, which change when files are removed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from operators.arrays import Mask
from operators.bounded_json import read_json
from operators.hashing import Hashes, row_hashes
from operators.parts.held_out import FITTED, By

STATE = "parts.json"
KEPT = "kept.npy"
MIN_ROWS = 20
"""A class with fewer rows is not drawn from: all its rows are training rows but those of ``holdout``."""
MAX_CLASSES = 10_000
"""Beyond as many labels `ingest` refuses the label column, and no class is looked for here."""

Counts = Counter[tuple[int, int, int]]
"""Hash of a label, part by ``draw``, and part by ``holdout`` (FITTED if not held) -> number of rows."""


@dataclass(frozen=True)
class Classes:
    """Sizes of the classes, and the rows of small ones that stay training rows. Picklable."""

    by: By = "content"
    """How rows are identified."""
    sizes: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """Hash of each label -> its rows, and those of them that operators learn from."""
    small: frozenset[int] = frozenset()
    """Hashes of the labels that are not drawn from."""
    kept: Hashes = field(default_factory=lambda: np.empty(0, np.uint64))
    """Marks (m,), ascending, of rows that are training rows although their hash draws them."""

    @classmethod
    def load(cls, state: Path) -> Classes:
        """Read what :meth:`save` has written."""
        found = read_json(state / STATE)
        sizes = {int(label): (n, learnt) for label, (n, learnt) in found["classes"].items()}
        return cls(found["by"], sizes, frozenset(found["small_classes"]), np.load(state / KEPT))

    def save(self, state: Path) -> None:
        """Write the classes into a state folder."""
        sizes = {str(label): self.sizes[label] for label in sorted(self.sizes)}
        found = {"by": self.by, "small_classes": sorted(self.small), "classes": sizes}
        (state / STATE).write_text(json.dumps(found), "utf-8")
        np.save(state / KEPT, self.kept)

    def with_rows(self, counts: Counts) -> Classes:
        """Return the classes with more rows. A class that is drawn from once is so from then on."""
        sizes = dict(self.sizes)
        for (label, drawn, held), n in counts.items():
            total, learnt = sizes.get(label, (0, 0))
            sizes[label] = total + n, learnt + (n if drawn == held == FITTED else 0)
        if len(sizes) > MAX_CLASSES:
            return Classes(self.by, {}, frozenset(), self.kept)
        open_ = {label for label in sizes if label in self.small or label not in self.sizes}
        small = {label for label in open_ if sizes[label][0] < MIN_ROWS or not sizes[label][1]}
        for (label, drawn, held), n in counts.items():
            if label in small and held == FITTED != drawn:
                sizes[label] = sizes[label][0], sizes[label][1] + n
        return Classes(self.by, sizes, frozenset(small), self.kept)

    def with_kept(self, marks: Hashes) -> Classes:
        """Return the classes with more rows that stay training rows, by their marks."""
        return Classes(self.by, self.sizes, self.small, np.union1d(self.kept, marks))

    def are_small(self, labels: Hashes) -> Mask:
        """Return whether each row (n,) is of a class that is not drawn from, by the hash of its label."""
        return np.isin(labels, np.array([*self.small], np.uint64))

    def stay(self, labels: Hashes, identities: Hashes) -> Mask:
        """Return whether each row (n,) is a training row whatever its hash draws."""
        return self.are_small(labels) | np.isin(marks_of(labels, identities), self.kept)


def marks_of(labels: Hashes, identities: Hashes) -> Hashes:
    """Return one number for the label and the identity of each row (n,)."""
    return row_hashes(labels, 0, "parts/kept") ^ identities
