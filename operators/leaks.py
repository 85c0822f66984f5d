"""Columns that tell the label on their own: usually written down after it, or computed from it.

A small decision tree, or for texts a table of categories, looks at one column and is judged on unseen rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.metrics import balanced_accuracy_score
from sklearn.tree import DecisionTreeClassifier

from operators.encode.summary import Form, as_numbers, as_seconds, as_texts, form_of

LEAK = 0.95
"""Balanced accuracy on unseen rows from which a column is called a likely leak."""
MIN_ROWS = 100
"""Rows below which nothing is said: chance predicts a few rows well."""
MIN_CLASS_ROWS = 50
"""Rows below which a class does not count, as long as two others do: a column that tells all but a handful
of rows leaks, although it is wrong on the whole of a tiny class."""
MOST_LEAVES, LEAF_ROWS = 16, 5

Indices = npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Leak:
    """A column that predicts the label almost perfectly.

    Attributes
    ----------
    name
        The column.
    score
        Balanced accuracy of the column alone on the held-out half, from 0 to 1, over the classes that count.
    chance
        Balanced accuracy of a guess: 1 / number of classes that count.

    """

    name: str
    score: float
    chance: float


def find_leaks(columns: Mapping[str, pa.ChunkedArray], y: Indices, *, seed: int = 0) -> list[Leak]:
    """Return the columns that alone predict the class of unseen rows almost perfectly, the best first.

    Parameters
    ----------
    columns
        Source columns of n rows each; those of other types than numbers, texts and times are passed over.
    y
        Class of each row, (n,); negative for rows without one. Classes of fewer than 50 rows are left out
        where at least two larger ones remain.
    seed
        Seed of the division into halves.

    """
    labelled = _rows_that_count(y)
    if len(labelled) < MIN_ROWS or len(np.unique(y[labelled])) < 2:
        return []
    shuffled = np.random.default_rng(seed).permutation(labelled)
    fit, held_out = shuffled[: len(shuffled) // 2], shuffled[len(shuffled) // 2 :]
    chance = 1.0 / len(np.unique(y[held_out]))
    found = []
    for name, column in columns.items():
        predicted = _predicted(column, y, fit, held_out)
        if predicted is None:
            continue
        score = float(balanced_accuracy_score(y[held_out], predicted))
        if score >= max(LEAK, (1 + chance) / 2):
            found.append(Leak(name, score, chance))
    return sorted(found, key=lambda leak: (-leak.score, leak.name))


def _rows_that_count(y: Indices) -> Rows:
    """Rows with a label, without those of tiny classes where at least two larger classes remain."""
    labelled = np.flatnonzero(y >= 0)
    sizes = np.bincount(y[labelled])
    large = sizes >= MIN_CLASS_ROWS
    rows: Rows = labelled[large[y[labelled]]] if np.count_nonzero(large) >= 2 else labelled
    return rows


def _predicted(column: pa.ChunkedArray, y: Indices, fit: Rows, rows: Rows) -> Indices | None:
    """Classes of ``rows`` by one column, learnt on ``fit``; None for a type that is passed over."""
    form = form_of(column.type)
    if form in (Form.TEXT, Form.CATEGORY):
        return _by_category(as_texts(column), y, fit, rows)
    if form in (Form.NUMBER, Form.INTEGER, Form.BOOLEAN):
        values = as_numbers(column)
    elif form == Form.TIME:
        values = as_seconds(column)
    else:
        return None
    missing = ~np.isfinite(values)
    x = np.column_stack([np.where(missing, 0.0, values), missing])
    tree = DecisionTreeClassifier(
        max_leaf_nodes=MOST_LEAVES, min_samples_leaf=LEAF_ROWS, class_weight="balanced", random_state=0
    )
    found: Indices = tree.fit(x[fit], y[fit]).predict(x[rows])
    return found


def _by_category(column: pa.ChunkedArray, y: Indices, fit: Rows, rows: Rows) -> Indices:
    """The class that is most over-represented in a row's category; rare categories count as one."""
    coded = column.combine_chunks().dictionary_encode()
    codes = coded.indices.fill_null(len(coded.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
    rows_of = np.bincount(codes[fit], minlength=len(coded.dictionary) + 1)
    codes = np.where(rows_of[codes] >= LEAF_ROWS, codes, len(rows_of))
    n_classes = int(y.max()) + 1
    joint = np.bincount(codes[fit] * n_classes + y[fit], minlength=(len(rows_of) + 1) * n_classes)
    shares = joint.reshape(-1, n_classes) / np.maximum(np.bincount(y[fit], minlength=n_classes), 1)
    found: Indices = shares.argmax(axis=1)[codes].astype(np.int32)[rows]
    return found
