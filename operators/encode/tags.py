"""Lists of texts, such as the tags of an article: a 0/1 feature for each frequent entry.

The features are those of scikit-learn's ``MultiLabelBinarizer``, restricted to the entries that enough rows
have. Entries are compared as categories are: white space, case and words for missing by the same rules; an
entry counts once in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Float32
from operators.columns import is_list
from operators.encode.sketches import Counts, ValueCounts
from operators.encode.texts import is_missing, tidy
from operators.encoded_features import Output
from operators.ingest.kernel import Codes

Rows = npt.NDArray[np.int64]


def is_tags(kind: pa.DataType) -> bool:
    """Return whether a type is a list of texts."""
    types = pa.types
    if not is_list(kind):
        return False
    inner = kind.value_type
    inner = inner.value_type if types.is_dictionary(inner) else inner
    return bool(types.is_string(inner) or types.is_large_string(inner) or types.is_string_view(inner))


def read_tags(
    column: pa.ChunkedArray, *, strip: bool, fold_case: bool, missing: tuple[str, ...]
) -> tuple[pa.Array, Rows, Rows]:
    """Return the distinct entries, and each pair of a row and one of its entries.

    Returns
    -------
    texts, rows, places
        Distinct tidied texts (k,), and (m,) pairs of a row and a position in ``texts``, without
        repetition, ascending by row. Null entries, and texts that stand for a missing value, are left out.

    Raises
    ------
    OperatorError
        A text is not valid UTF-8.
    """
    lists = column.combine_chunks()
    lists = pa.concat_arrays(lists.chunks) if isinstance(lists, pa.ChunkedArray) else lists
    valid = np.flatnonzero(lists.is_valid().to_numpy(zero_copy_only=False))
    lists = lists.drop_null()  # a null list may lie over entries, which are none of the row's
    rows = valid[pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)]
    entries = pc.list_flatten(lists)
    if pa.types.is_dictionary(entries.type):
        entries = entries.cast(entries.type.value_type)
    encoded = entries.cast(pa.large_string()).dictionary_encode()
    tidied = tidy(encoded.dictionary, strip=strip, fold_case=fold_case)
    merged = tidied.dictionary_encode()  # several spellings are one entry
    places = np.asarray(merged.indices.to_numpy(zero_copy_only=False), np.int64)
    places = np.where(is_missing(tidied, missing), -1, places)
    found = np.append(places, -1)[encoded.indices.fill_null(len(places)).to_numpy(zero_copy_only=False)]
    n = len(merged.dictionary)
    pairs = np.unique(rows[found >= 0] * n + found[found >= 0])
    return merged.dictionary, pairs // max(n, 1), pairs % max(n, 1)


def count_tags(
    column: pa.ChunkedArray, *, strip: bool, fold_case: bool, missing: tuple[str, ...]
) -> ValueCounts:
    """Count the rows that have each entry.

    Raises
    ------
    OperatorError
        A text is not valid UTF-8.
    """
    texts, _, places = read_tags(column, strip=strip, fold_case=fold_case, missing=missing)
    rows = np.bincount(places, minlength=len(texts))
    occurring = np.flatnonzero(rows)
    return ValueCounts.of(texts.take(pa.array(occurring)), rows[occurring])


@dataclass(frozen=True)
class TagsEncoding:
    """A fitted column of lists of texts.

    Attributes
    ----------
    source : the column.
    strip, fold_case, missing : how entries are compared; see
        :class:`operators.encode.categories.TextReading`.
    frequent : entries with a 0/1 feature, ascending.
    bucket : whether there is a 0/1 feature for all other entries.
    indicator : whether there is a feature "is missing".
    constant : entries that every row of the fit has; they are no feature, and not among all other entries.
    """

    source: str
    strip: bool
    fold_case: bool
    missing: tuple[str, ...]
    frequent: tuple[str, ...]
    bucket: bool
    indicator: bool
    constant: tuple[str, ...] = ()

    @property
    def outputs(self) -> list[Output]:
        """Return the features, with the source column of each."""
        found = [Output(self.source, "tags", f"{self.source}: {text}", "category") for text in self.frequent]
        if self.bucket:
            found.append(Output(self.source, "tags", f"{self.source}: an infrequent entry", "infrequent"))
        if self.indicator:
            found.append(Output(self.source, "tags", f"{self.source} is missing", "missing"))
        return found

    def encode(self, column: pa.ChunkedArray, x: Float32, codes: Codes) -> None:
        """Write the features of n rows into ``x`` (n, width), which is 0. No list is a fault."""
        if self.indicator:
            x[:, -1] = column.is_null().to_numpy()
        if pa.types.is_null(column.type):
            return
        texts, rows, places = read_tags(
            column, strip=self.strip, fold_case=self.fold_case, missing=self.missing
        )
        known = pc.index_in(texts, value_set=pa.array(self.frequent, texts.type)).fill_null(
            len(self.frequent)
        )
        feature = np.asarray(known.to_numpy(zero_copy_only=False), np.int64)[places]
        varies = pc.invert(pc.is_in(texts, value_set=pa.array(self.constant, texts.type)))
        kept = varies.to_numpy(zero_copy_only=False)[places] & (feature < len(self.frequent) + self.bucket)
        x[rows[kept], feature[kept]] = 1.0

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as JSON-able values."""
        return {
            "type": "tags",
            "source": self.source,
            "strip": self.strip,
            "fold_case": self.fold_case,
            "missing": list(self.missing),
            "frequent": list(self.frequent),
            "bucket": self.bucket,
            "indicator": self.indicator,
            "constant": list(self.constant),
        }

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Self:
        """Read what :meth:`to_json` returned."""
        return cls(
            found["source"],
            found["strip"],
            found["fold_case"],
            tuple(found["missing"]),
            tuple(found["frequent"]),
            found["bucket"],
            found["indicator"],
            tuple(found.get("constant", ())),
        )


def choose_tags(
    values: pa.Array, counts: Counts, rows: int, *, min_share: float, max_columns: int
) -> tuple[tuple[str, ...], bool, tuple[str, ...]]:
    """Return the entries that get a feature, whether all others together get one, and the constant entries.

    Parameters
    ----------
    values : entries, ascending.
    counts : rows that have each.
    rows : all rows. An entry that every row has is constant: it gets no feature, and is none of the others.
    min_share : least share of rows of an entry with a feature; the others together get one if their
        occurrences are as many.
    max_columns : most features, that of the others included; the most frequent entries are kept.
    """
    frequent = np.flatnonzero((counts >= max(min_share * rows, 1)) & (counts < rows))
    rare = int(counts[counts < rows].sum() - counts[frequent].sum())
    if len(frequent) > max_columns - bool(rare):
        order = np.argsort(-counts[frequent], kind="stable")
        left_out = frequent[order[max_columns - 1 :]]
        rare += int(counts[left_out].sum())
        frequent = np.sort(frequent[order[: max_columns - 1]])
    bucket = rare > 0 and rare >= min_share * rows
    constant = np.flatnonzero(counts >= rows)
    kept, same = (tuple(values.take(pa.array(places)).to_pylist()) for places in (frequent, constant))
    return kept, bucket, same
