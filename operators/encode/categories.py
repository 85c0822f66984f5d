"""Categories: 0/1 features for frequent ones, and three ways to represent the infrequent ones.

The 0/1 features are those of scikit-learn's ``OneHotEncoder(min_frequency=, max_categories=,
handle_unknown="infrequent_if_exist", drop="if_binary")`` with a missing value as a category, except that the
feature of all infrequent categories is left out where these together are infrequent too. Hashes are those of
``FeatureHasher``, class shares those of ``TargetEncoder(smooth=)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float32
from operators.encode.column_forms import as_texts, dictionary_encoded
from operators.encode.params import MAX_COLUMNS
from operators.encode.sketches import Counts
from operators.encode.targets import TargetTable
from operators.encode.texts import is_missing, tidy
from operators.encoded_features import Output, Role
from operators.ingest.kernel import Codes

COMMON_SHARE = 0.01
"""Share of rows from which a category has a feature of its own, however many these are."""
TARGET_SHARE = 0.2
"""Share of rows with an infrequent category above which ``rare: auto`` uses class shares."""
MAX_TARGET_CLASSES = 10
"""Most classes for which class shares are used: each class is a feature of its own."""

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TextReading:
    """Rules by which the texts of a column are compared."""

    strip: bool = True
    fold_case: bool = False
    missing: tuple[str, ...] = ()

    def levels(self, column: pa.ChunkedArray) -> tuple[pa.Array, Indices]:
        """Return the distinct values as texts (k,), null where missing, and the index of each row (n,).

        The last text is null, for rows without a value.
        """
        texts = column if pa.types.is_dictionary(column.type) else as_texts(column)
        encoded = dictionary_encoded(texts)
        distinct = as_texts(pa.chunked_array([encoded.dictionary])).combine_chunks()
        tidied = tidy(distinct, strip=self.strip, fold_case=self.fold_case)
        absent = pa.array(is_missing(tidied, self.missing))
        tidied = pc.if_else(absent, pa.scalar(None, tidied.type), tidied)
        codes = encoded.indices.cast(pa.int64()).fill_null(len(tidied)).to_numpy()
        return pa.concat_arrays([tidied, pa.nulls(1, tidied.type)]), codes


@dataclass(frozen=True)
class CategoryEncoding:
    """A fitted categorical column.

    Attributes
    ----------
    source : the column.
    reading : how texts are compared.
    frequent : categories with a 0/1 feature, ascending; None among them, as the last, is the missing value.
    bucket : whether there is a 0/1 feature for all other values.
    binary : whether the column has two levels, of which only the second gets a feature.
    hash_columns : features of the hash of all other values; 0 without.
    target : class shares of every category; None without.
    """

    source: str
    reading: TextReading
    frequent: tuple[str | None, ...]
    bucket: bool = False
    binary: bool = False
    hash_columns: int = 0
    target: TargetTable | None = None

    @property
    def outputs(self) -> list[Output]:
        """Return the features, with the source column of each."""
        found = [self._output(self._level(value, role), role) for value, role in self._indicators()]
        found += [self._output(f": hash {k}", "hash") for k in range(self.hash_columns)]
        if self.target is not None:
            found += [self._output(f": share of {name}", "target") for name in self.target.names]
        return found

    def encode(
        self, column: pa.ChunkedArray, x: Float32, codes: Codes, folds: npt.NDArray[np.int64] | None = None
    ) -> None:
        """Write the features of n rows into ``x`` (n, width), which is 0.

        Parameters
        ----------
        column : the column's values.
        x : (n, width) float32.
        codes : (n,) reasons of faulty rows; no category is one.
        folds : fold of each row that the class shares were counted on; None for other rows.
        """
        texts, rows = self.reading.levels(column)
        one_hot = self._places(texts)[rows]
        inside = np.flatnonzero(one_hot >= 0)
        x[inside, one_hot[inside]] = 1.0
        start = len(self._indicators())
        if self.hash_columns:
            x[:, start : start + self.hash_columns] = self._hashes(texts)[rows]
            start += self.hash_columns
        if self.target is not None:
            x[:, start:] = self.target.shares(texts, rows, folds)

    def counts(self, column: pa.ChunkedArray, known: pa.Array | None) -> tuple[Counts, int, int]:
        """Count rows by level.

        Parameters
        ----------
        column : the column's values.
        known : all categories that ``fit`` has seen; None if they were too many to keep.

        Returns
        -------
        Rows of each of ``frequent`` (0 for the missing value), and in the last entry of all other categories;
        how many of the latter are not ``known``; and rows without a value.
        """
        texts, rows = self.reading.levels(column)
        per_text = np.bincount(rows, minlength=len(texts))
        present = texts.is_valid().to_numpy(zero_copy_only=False)
        levels = self._levels(texts)[present]
        places = np.where(levels < 0, len(self.frequent), levels)
        found = np.bincount(places, per_text[present], len(self.frequent) + 1).astype(np.int64)
        new = 0
        if known is not None:
            unseen = pc.invert(pc.is_in(texts, value_set=known)).to_numpy(zero_copy_only=False)
            new = int(per_text[unseen & present].sum())
        return found, new, int(per_text[~present].sum())

    def _indicators(self) -> list[tuple[str | None, Role]]:
        """Return the levels with a 0/1 feature, each with its role."""
        levels: list[tuple[str | None, Role]] = [
            (value, "missing" if value is None else "category") for value in self.frequent
        ]
        levels += [("", "infrequent")] if self.bucket else []
        return levels[1:] if self.binary else levels

    def _level(self, value: str | None, role: Role) -> str:
        if role == "infrequent":
            return " is infrequent"
        return " is missing" if value is None else f" = {value}"  # an empty text is a category as others are

    def _output(self, text: str, role: Role) -> Output:
        return Output(self.source, "categorical", f"{self.source}{text}", role)

    def _levels(self, texts: pa.Array) -> Indices:
        """Return the position of texts (k,) in ``frequent``, -1 for others."""
        values = pa.array(list(self.frequent), texts.type)
        return np.asarray(pc.index_in(texts, value_set=values).fill_null(-1).to_numpy(), np.int64)

    def _places(self, texts: pa.Array) -> Indices:
        """Return the 0/1 feature of texts (k,), -1 for none."""
        levels = self._levels(texts)
        if self.bucket:
            levels = np.where(levels < 0, len(self.frequent), levels)
        return levels - 1 if self.binary else levels

    def _hashes(self, texts: pa.Array) -> Float32:
        """Return hashed features (k, hash_columns) of texts: 0 for frequent ones."""
        from sklearn.utils import murmurhash3_32  # slow to import, and seldom needed

        found = np.zeros((len(texts), self.hash_columns), np.float32)
        others = np.flatnonzero(self._levels(texts) < 0)
        for row, text in zip(others.tolist(), texts.take(pa.array(others)).to_pylist(), strict=True):
            hashed = murmurhash3_32(text or "", seed=0)
            found[row, abs(hashed) % self.hash_columns] = 1.0 if hashed >= 0 else -1.0
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as JSON-able values, without the table of class shares."""
        return {
            "type": "category",
            "source": self.source,
            "strip": self.reading.strip,
            "fold_case": self.reading.fold_case,
            "missing": list(self.reading.missing),
            "frequent": list(self.frequent),
            "bucket": self.bucket,
            "binary": self.binary,
            "hash_columns": self.hash_columns,
        }

    @classmethod
    def from_json(cls, found: dict[str, Any], target: TargetTable | None) -> Self:
        """Read what :meth:`to_json` returned."""
        reading = TextReading(found["strip"], found["fold_case"], tuple(found["missing"]))
        return cls(
            found["source"],
            reading,
            tuple(found["frequent"]),
            found["bucket"],
            found["binary"],
            found["hash_columns"],
            target,
        )


@dataclass(frozen=True)
class Levels:
    """Division of a column's categories.

    Attributes
    ----------
    frequent : categories with a feature, ascending; None as the last for the missing value.
    infrequent_rows : rows with another category.
    bucket : whether the other categories together have a feature.
    binary : whether two levels are left in all.
    """

    frequent: tuple[str | None, ...]
    infrequent_rows: int
    bucket: bool
    binary: bool


def choose_levels(
    values: Sequence[str | None], counts: Counts, rows: int, *, min_share: float, max_columns: int | None
) -> Levels:
    """Divide categories into frequent and infrequent ones, as ``OneHotEncoder`` does.

    Parameters
    ----------
    values : categories, ascending; None as the last for the missing value, if it occurs.
    counts : rows of each.
    rows : all rows, of which categories that are not among ``values`` have some.
    min_share : least share of rows of a frequent category.
    max_columns : most features, that of the infrequent ones included; None for ``MAX_COLUMNS``, or the
        categories with ``COMMON_SHARE`` of the rows and one, where these are more.
    """
    if max_columns is None:
        max_columns = max(MAX_COLUMNS, int((counts >= COMMON_SHARE * rows).sum()) + 1)
    frequent = counts >= max(min_share * rows, 1)
    others = bool((~frequent).any()) or int(counts.sum()) < rows
    if int(frequent.sum()) + others > max_columns:
        order = np.argsort(np.where(frequent, counts, 0), kind="stable")
        frequent = np.zeros(len(counts), bool)
        frequent[order[-(max_columns - 1) :]] = True
    kept = tuple(values[index] for index in np.flatnonzero(frequent).tolist())
    rest = rows - int(counts[frequent].sum())
    bucket = rest > 0 and rest >= min_share * rows
    return Levels(kept, rest, bucket, len(kept) + bucket == 2 and (bucket or not rest))


def rare_method(
    rare: Literal["auto", "bucket", "hash", "target"], levels: Levels, rows: int, n_classes: int
) -> Literal["bucket", "hash", "target"]:
    """Return what represents the infrequent categories of a column."""
    if rare == "target" and not 2 <= n_classes <= MAX_TARGET_CLASSES:
        return "hash"
    if rare != "auto":
        return rare
    many = levels.infrequent_rows > TARGET_SHARE * rows
    return "target" if many and 2 <= n_classes <= MAX_TARGET_CLASSES else "bucket"
